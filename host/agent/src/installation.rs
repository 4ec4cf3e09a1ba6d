//! Installs engines: copies the library, pins it in the lock file and enters it in the config, or changes nothing.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::engine_registry;
use ctxhost_config::{Config, ConfigError, EntryEdit, remove_entry_path, set_entry_path};
use ctxhost_engine::{EngineFile, FailureLog, Isolation, LEGACY, LoadError};
use ctxhost_trust::{EnginePackage, FolderError, InstallFolder, LockError, LockFile, Pin};

/// Why an engine was not installed or removed. The config and its lock file are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The lock file could not be read or written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A library could not be written or removed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The config could not be read or edited.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The library could not be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The id is that of the bundled fallback engine.
    #[error(
        "`legacy` is the bundled fallback engine and cannot be replaced; give the engine another id"
    )]
    Legacy,
    /// The engine is not installed.
    #[error("{id:?} is not installed: {} has no pin for it", lock.display())]
    NotInstalled { id: String, lock: PathBuf },
}

/// Installs and removes engines of a config.
#[derive(Debug)]
pub struct EngineInstaller<'a> {
    /// The config file; created if it does not exist.
    pub config: &'a Path,
    /// The user's state folder.
    pub state: &'a Path,
    /// The failure log, whose records of replaced builds are removed.
    pub failure_log: &'a FailureLog,
}

/// The result of an installation.
#[derive(Debug)]
pub struct InstalledEngine {
    pub pin: Pin,
    /// The pin of the replaced build.
    pub old: Option<Pin>,
    pub lock: PathBuf,
    /// Whether the config was changed.
    pub config_changed: bool,
    /// Whether the config was created.
    pub config_created: bool,
    /// Whether a quarantine of another build was lifted.
    pub released: bool,
}

impl EngineInstaller<'_> {
    /// Installs an inspected package: the inspected bytes are the ones that are copied and pinned.
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
        // The file, its pin, its entry, in this order: the config never names an unpinned file.
        let path = folder.put(package)?;
        let pin = Pin {
            id: id.clone(),
            version: file.meta.version.clone(),
            file: path.clone(),
            sha256: file.sha256.clone(),
            size: file.bytes,
            signer: package.signer().map(str::to_owned),
            installed_at: now(),
            conformance: package.conformance.as_ref().map(|report| report.verdict.clone()),
        };
        let old = lock.put(pin.clone());
        let is_new = old.as_ref().is_none_or(|old| old.file != path);
        let is_new_config = !self.config.exists();
        let entered = held.write(&lock).map_err(InstallationError::from).and_then(|()| {
            self.write_entry(id, &path, &file.sha256).map_err(|error| {
                // The entry was not written, so the pin goes as well.
                let restored = held.restore(before.as_ref());
                restored.err().map_or_else(|| error.into(), InstallationError::from)
            })
        });
        let edit = entered.inspect_err(|_| {
            // The file of the previous build stays if the path is the same.
            if is_new {
                remove_unused(&folder, &path);
            }
        })?;
        if let Some(old) = old.as_ref().filter(|old| old.file != path) {
            remove_unused(&folder, &old.file);
        }
        // The failures of another build do not apply to this one.
        let released = self.failure_log.forget_other_builds(id, &file.sha256);
        Ok(InstalledEngine {
            pin,
            old,
            lock: held.path().to_owned(),
            config_changed: edit.changed,
            config_created: is_new_config && edit.changed,
            // The engine is installed; a failure log that cannot be written does not undo that.
            released: released.is_ok_and(|records| !records.is_empty()),
        })
    }

    /// Removes an engine: the path of its config entry, its pin and its file. Its settings stay in the config.
    pub fn uninstall(&self, id: &str) -> Result<Pin, InstallationError> {
        let folder = self.folder(&self.settings()?);
        let held = LockFile::acquire(self.config)?;
        let mut lock = held.load()?.unwrap_or_default();
        let not_installed =
            || InstallationError::NotInstalled { id: id.into(), lock: held.path().to_owned() };
        let pin = lock.remove(id).ok_or_else(not_installed)?;
        // The config first: a pin without an entry is harmless, the reverse is not.
        let edit = remove_entry_path(self.config, id)?;
        if let Err(error) = held.write(&lock) {
            edit.restore()?;
            return Err(error.into());
        }
        remove_unused(&folder, &pin.file);
        Ok(pin)
    }

    /// The isolation that an engine file will have once it is installed.
    ///
    /// # Errors
    ///
    /// [`InstallationError::Config`].
    pub fn isolation(&self, file: &EngineFile) -> Result<Isolation, InstallationError> {
        Ok(engine_registry::isolation_for(&self.settings()?, &file.meta))
    }

    /// Enters the file in the config. The config is reloaded to find conflicts with its other settings.
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

    /// The path for the config: relative below the config's folder, so that both can be moved together.
    fn config_path(&self, file: &Path) -> String {
        let folder = self.config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        let below = folder.ok().and_then(|folder| Some(file.strip_prefix(folder).ok()?.to_owned()));
        below.as_deref().unwrap_or(file).display().to_string()
    }
}

/// Removes an unused library. A failure is only logged: the file does no harm.
fn remove_unused(folder: &InstallFolder, file: &Path) {
    if let Err(error) = folder.remove(file) {
        tracing::error!(%error, "cannot remove an unused engine library");
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
