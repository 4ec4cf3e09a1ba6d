//! Installs engines: copies the library, pins it in the lock file and enters it in the config, or changes nothing.

mod sync;

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::engine_registry;
use ctxhost_config::{Config, ConfigError, EntryEdit, remove_entry_path, set_entry_path};
use ctxhost_engine::{EngineFile, FailureLog, Isolation, LEGACY, LoadError};
use ctxhost_trust::{
    EngineLock, EnginePackage, FolderError, InstallFolder, LockError, LockFile, Pin,
    SignatureError, recorded_source, relative_path,
};

pub use self::sync::{EngineSyncReport, EngineSyncResult, SyncError, SyncedEngine};

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
    /// A key in the config is invalid.
    #[error(transparent)]
    Key(#[from] SignatureError),
    /// The library could not be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The id is that of the bundled fallback engine.
    #[error(
        "`legacy` is the bundled fallback engine and cannot be replaced; give the engine another id"
    )]
    Legacy,
    /// The lock file does not exist.
    #[error("{} does not exist; `ctxhost install LIBRARY` writes it, and it belongs to the project's files", lock.display())]
    NoLock { lock: PathBuf },
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

/// The folders of a config.
#[derive(Debug)]
struct InstallFolders {
    /// The canonical folder of the config and its lock file.
    project: PathBuf,
    /// The folder of installed files.
    current: InstallFolder,
    /// The default folder of earlier versions.
    former: InstallFolder,
}

impl EngineInstaller<'_> {
    /// Installs an inspected package: the inspected bytes are the ones that are copied and pinned. `named` is the path
    /// or URL that the user gave.
    pub fn install(
        &self,
        package: &EnginePackage,
        named: &str,
    ) -> Result<InstalledEngine, InstallationError> {
        let file = &package.file;
        let id = &file.meta.id;
        if *id == LEGACY {
            return Err(InstallationError::Legacy);
        }
        let settings = self.settings()?;
        let folders = self.folders(&settings)?;
        // A folder that the user named may be anywhere.
        if settings.plugins.install_dir.is_none() {
            folders.current.check_inside(&folders.project)?;
        }
        let held = LockFile::acquire(self.config)?;
        let before = held.load()?;
        let mut lock = before.clone().unwrap_or_default();
        // The file, its pin, its entry, in this order: the config never names an unpinned file.
        let path = folders.current.put(package)?;
        let pin = Pin {
            id: id.clone(),
            version: file.meta.version.clone(),
            file: folders.recorded_path(&path),
            source: recorded_source(&folders.project, named, &file.path),
            sha256: file.sha256.clone(),
            size: file.bytes,
            signer: package.signer().map(str::to_owned),
            installed_at: now(),
            conformance: package.conformance.as_ref().map(|report| report.verdict.clone()),
        };
        let old = lock.put(pin.clone());
        folders.set_files(&mut lock);
        let is_new = old.as_ref().is_none_or(|old| old.sha256 != file.sha256);
        let is_new_config = !self.config.exists();
        let entered = held.write(&lock).map_err(InstallationError::from).and_then(|()| {
            self.write_entry(id, &folders.recorded_path(&path), &file.sha256).map_err(|error| {
                // The entry was not written, so the pin goes as well.
                let restored = held.restore(before.as_ref());
                restored.err().map_or_else(|| error.into(), InstallationError::from)
            })
        });
        let edit = entered.inspect_err(|_| {
            // The file of the previous build stays if the path is the same.
            if is_new {
                folders.remove_unused(&path);
            }
        })?;
        if is_new {
            for unused in folders.files_of(old.as_ref(), &settings, id) {
                folders.remove_unused(&unused);
            }
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
        let settings = self.settings()?;
        let folders = self.folders(&settings)?;
        let held = LockFile::acquire(self.config)?;
        let mut lock = held.load()?.unwrap_or_default();
        let not_installed =
            || InstallationError::NotInstalled { id: id.into(), lock: held.path().to_owned() };
        let pin = lock.remove(id).ok_or_else(not_installed)?;
        // The config first: a pin without an entry is harmless, the reverse is not.
        let edit = remove_entry_path(self.config, id)?;
        folders.set_files(&mut lock);
        if let Err(error) = held.write(&lock) {
            edit.restore()?;
            return Err(error.into());
        }
        for unused in folders.files_of(Some(&pin), &settings, id) {
            folders.remove_unused(&unused);
        }
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
    fn write_entry(&self, id: &str, file: &str, sha256: &str) -> Result<EntryEdit, ConfigError> {
        let edit = set_entry_path(self.config, id, file, sha256)?;
        if let Err(error) = Config::load(self.config) {
            edit.restore()?;
            return Err(error);
        }
        Ok(edit)
    }

    fn settings(&self) -> Result<Config, InstallationError> {
        Ok(if self.config.exists() { Config::load(self.config)? } else { Config::default() })
    }

    fn folders(&self, settings: &Config) -> Result<InstallFolders, FolderError> {
        let project = self.config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let project = project.unwrap_or(Path::new("."));
        let project = project.canonicalize().map_err(|source| FolderError {
            action: "read",
            path: project.to_owned(),
            source,
        })?;
        let current = match &settings.plugins.install_dir {
            Some(named) => InstallFolder::new(named),
            None => InstallFolder::in_project(&project),
        };
        let former = InstallFolder::in_state(self.state, self.config);
        Ok(InstallFolders { project, current, former })
    }
}

impl InstallFolders {
    /// A path as the config and the lock file hold it: relative below their folder, so that all can be moved together.
    fn recorded_path(&self, file: &Path) -> String {
        let real = real_path(file);
        relative_path(&self.project, &real).unwrap_or_else(|| real.display().to_string())
    }

    /// Sets the paths of all pins to those in the current folder.
    fn set_files(&self, lock: &mut EngineLock) {
        lock.set_files(|pin| self.pinned_path(pin));
    }

    /// The path of the installed file of a pin, as the lock file holds it.
    fn pinned_path(&self, pin: &Pin) -> String {
        self.recorded_path(&self.current.file_path(&pin.id, &pin.sha256))
    }

    /// The files that an engine may have left: that of its pin, and that of its entry.
    fn files_of(&self, pin: Option<&Pin>, settings: &Config, id: &str) -> Vec<PathBuf> {
        let pinned = pin.map(|pin| self.current.file_path(&pin.id, &pin.sha256));
        let entered = settings.entry(id).and_then(|entry| entry.path.clone());
        pinned.into_iter().chain(entered).collect()
    }

    /// Removes an unused library from the folders of installed files. A failure is only logged: the file does no harm.
    fn remove_unused(&self, file: &Path) {
        for folder in [&self.current, &self.former] {
            if let Err(error) = folder.remove(file) {
                tracing::error!(%error, "cannot remove an unused engine library");
            }
        }
    }
}

/// The real path of a file that may not exist yet: its folder may be named through a link.
fn real_path(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let real = absolute.ancestors().find_map(|above| {
        let rest = absolute.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.components().chain(rest.components()).collect())
    });
    real.unwrap_or(absolute)
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
