//! Installing an engine: its bytes are copied, pinned beside the config and named in it, or nothing is.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::engine_registry;
use ctxhost_config::{Config, ConfigError, EntryEdit, remove_entry_path, set_entry_path};
use ctxhost_engine::{EngineFile, FailureLog, Isolation, LEGACY, LoadError};
use ctxhost_trust::{EnginePackage, FolderError, InstallFolder, LockError, LockFile, Pin};

/// Why an engine was not installed or not taken away. The config and its lock are as they were.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The lock cannot be read or written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file cannot be written or removed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The config cannot be read or edited.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The id belongs to an engine of the host's own that everything ends at.
    #[error("`legacy` is the host's own and cannot be replaced; give the engine another id")]
    Legacy,
    /// There is no such engine to take away.
    #[error("{id:?} is not installed here: {} has no pin for it", lock.display())]
    NotInstalled {
        /// The engine.
        id: String,
        /// The lock.
        lock: PathBuf,
    },
}

/// Where the engines of a config are, and what is known against them.
#[derive(Debug)]
pub struct EngineInstaller<'a> {
    /// The config file; it is made where it is not there.
    pub config: &'a Path,
    /// The user's state folder.
    pub state: &'a Path,
    /// What engines did to hosts.
    pub failure_log: &'a FailureLog,
}

/// An engine that was installed.
#[derive(Debug)]
pub struct InstalledEngine {
    /// Its pin.
    pub pin: Pin,
    /// The pin that it replaced.
    pub old: Option<Pin>,
    /// The lock.
    pub lock: PathBuf,
    /// Whether the config had to be changed.
    pub config_changed: bool,
    /// Whether it was not there before.
    pub config_created: bool,
    /// Whether an older build was in quarantine, which this one is not.
    pub released: bool,
}

impl EngineInstaller<'_> {
    /// Installs what was read: the very bytes that were shown are the ones that are copied and pinned.
    ///
    /// # Errors
    ///
    /// [`InstallationError`].
    pub fn install(&self, package: &EnginePackage) -> Result<InstalledEngine, InstallationError> {
        let file = &package.file;
        let id = &file.meta.id;
        if *id == LEGACY {
            return Err(InstallationError::Legacy);
        }
        let settings = self.settings()?;
        let folder = self.folder(&settings);
        let held = LockFile::acquire(self.config)?;
        let before = held.load()?;
        let mut lock = before.clone().unwrap_or_default();
        let path = folder.put(package)?;
        let pin = Pin {
            id: id.clone(),
            version: file.meta.version.clone(),
            file: path.clone(),
            sha256: file.sha256.clone(),
            size: file.bytes,
            signer: package.signer().map(str::to_owned),
            installed_at: now(),
            conformance: package.conformance.as_ref().map(|it| it.verdict.clone()),
        };
        let old = lock.put(pin.clone());
        let is_new = old.as_ref().is_none_or(|old| old.file != path);
        let is_new_config = !self.config.exists();
        let entered = held.write(&lock).map_err(InstallationError::from).and_then(|()| {
            self.write_entry(id, &path, &file.sha256).map_err(|error| {
                let restored = held.restore(before.as_ref());
                restored.err().map_or_else(|| error.into(), InstallationError::from)
            })
        });
        let edit = entered.inspect_err(|_| {
            if is_new {
                remove_unused(&folder, &path);
            }
        })?;
        if let Some(old) = old.as_ref().filter(|old| old.file != path) {
            remove_unused(&folder, &old.file);
        }
        // Whoever installs another build answers for it; the old one's failures are not its own.
        let released = self.failure_log.forget_other_builds(id, &file.sha256);
        Ok(InstalledEngine {
            pin,
            old,
            lock: held.path().to_owned(),
            config_changed: edit.changed,
            config_created: is_new_config && edit.changed,
            released: released.is_ok_and(|records| !records.is_empty()),
        })
    }

    /// Takes an engine away: its entry's path, its pin, its file. Its settings stay in the config.
    ///
    /// # Errors
    ///
    /// [`InstallationError`].
    pub fn uninstall(&self, id: &str) -> Result<Pin, InstallationError> {
        let folder = self.folder(&self.settings()?);
        let held = LockFile::acquire(self.config)?;
        let mut lock = held.load()?.unwrap_or_default();
        let not_installed =
            || InstallationError::NotInstalled { id: id.into(), lock: held.path().to_owned() };
        let pin = lock.remove(id).ok_or_else(not_installed)?;
        let edit = remove_entry_path(self.config, id)?;
        if let Err(error) = held.write(&lock) {
            edit.restore()?;
            return Err(error.into());
        }
        remove_unused(&folder, &pin.file);
        Ok(pin)
    }

    /// How far the engine of a file will be kept from the host once it is installed.
    ///
    /// # Errors
    ///
    /// [`InstallationError::Config`].
    pub fn isolation(&self, file: &EngineFile) -> Result<Isolation, InstallationError> {
        Ok(engine_registry::isolation_for(&self.settings()?, &file.meta))
    }

    /// Names the file in the config. An entry that does not fit the rest of it is found when the whole
    /// is read again.
    fn write_entry(&self, id: &str, file: &Path, sha256: &str) -> Result<EntryEdit, ConfigError> {
        let edit = set_entry_path(self.config, id, &self.config_path(file), sha256)?;
        if let Err(error) = Config::load(self.config) {
            edit.restore()?;
            return Err(error);
        }
        Ok(edit)
    }

    fn settings(&self) -> Result<Config, InstallationError> {
        Ok(if self.config.exists() { Config::load(self.config)? } else { Config::default() })
    }

    fn folder(&self, settings: &Config) -> InstallFolder {
        match &settings.plugins.install_dir {
            Some(named) => InstallFolder::new(named),
            None => InstallFolder::for_config(self.state, self.config),
        }
    }

    /// A file below the config's folder is named from there, so that both can be moved together.
    fn config_path(&self, file: &Path) -> String {
        let folder = self.config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        let below = folder.ok().and_then(|folder| Some(file.strip_prefix(folder).ok()?.to_owned()));
        below.as_deref().unwrap_or(file).display().to_string()
    }
}

/// Takes a file away that nothing names any more. What stays takes room and does no harm.
fn remove_unused(folder: &InstallFolder, file: &Path) {
    if let Err(error) = folder.remove(file) {
        tracing::error!(%error, "a library that is not used any more is still there");
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
