//! Installs what the lock file names: in a new checkout, after a pull, and for locks of earlier versions.

use std::path::{Path, PathBuf};

use super::{EngineInstaller, InstallFolders, InstallationError};
use ctxhost_config::{Config, ConfigError};
use ctxhost_engine::{EngineFile, LoadError};
use ctxhost_trust::{
    EnginePackage, FolderError, LockFile, PackageError, Pin, Signature, SourceError, TrustedKeys,
    resolve_source,
};

/// Why an engine of the lock file is not installed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The lock file names no source that exists here.
    #[error(
        "its file is missing, and ctxhost.lock names no source for it; `ctxhost install FILE` with the pinned file adds both"
    )]
    NoSource,
    /// The source does not exist.
    #[error("its source {path} does not exist; put the file there, or run `ctxhost install FILE`", path = path.display())]
    SourceMissing {
        /// The file.
        path: PathBuf,
    },
    /// The source is not read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source has other bytes.
    #[error(
        "{path} has sha256 {found}, and ctxhost.lock pins {expected}; get the pinned build, or pin this one with `ctxhost install {path}`",
        path = path.display()
    )]
    OtherBytes {
        /// The file.
        path: PathBuf,
        /// The pinned digest.
        expected: String,
        /// The digest of the file.
        found: String,
    },
    /// The file is an engine with another id.
    #[error("{path} is the engine {found:?}", path = path.display())]
    OtherEngine {
        /// The file.
        path: PathBuf,
        /// The id in the file.
        found: String,
    },
    /// The signature that the pin or the config asks for is missing.
    #[error("{path} has no signature by {}", signer.as_deref().map_or("one of plugins.trusted_keys (plugins.require_signature)".into(), |key| format!("key {key}, which signed it when it was pinned")), path = path.display())]
    NotSigned {
        /// The file.
        path: PathBuf,
        /// The key of the pin; `None` if any trusted key would do.
        signer: Option<String>,
    },
    /// The entry in the config pins other bytes.
    #[error(
        "plugins.entries.{id}.sha256 and ctxhost.lock name different bytes; `ctxhost install FILE` settles it"
    )]
    Conflict {
        /// The engine.
        id: String,
    },
    /// The file is not a valid engine.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The installed file cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The config cannot be changed.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What was found or done for an engine of the lock file.
#[derive(Debug)]
pub enum EngineSyncResult {
    /// The installed file has the pinned bytes.
    Present,
    /// It was installed from this file.
    Installed {
        /// The source.
        from: PathBuf,
    },
    /// It is not installed.
    Failed(SyncError),
}

/// An engine of the lock file.
#[derive(Debug)]
pub struct SyncedEngine {
    pub pin: Pin,
    pub result: EngineSyncResult,
}

/// What `sync` did.
#[derive(Debug, Default)]
pub struct EngineSyncReport {
    /// Every engine of the lock file, by id.
    pub engines: Vec<SyncedEngine>,
    /// Whether the lock file differs from what this version writes. It was rewritten unless the caller locked it.
    pub lock_changed: bool,
    /// The engines whose path in the config is not that of their installed file. The config was changed unless the
    /// caller locked it.
    pub entries_changed: Vec<String>,
}

/// An engine's file that is to be used.
enum UsableFile {
    /// At the path of its entry.
    Entered,
    /// In the install folder.
    Installed,
    /// Elsewhere: it must be copied.
    Package(Box<EnginePackage>),
}

impl EngineInstaller<'_> {
    /// Installs what the lock file names and is missing. Runs no code of an engine. With `locked` neither the lock file
    /// nor the config is changed.
    pub fn sync(&self, locked: bool) -> Result<EngineSyncReport, InstallationError> {
        let settings = self.settings()?;
        let keys = TrustedKeys::parse(&settings.plugins.trusted_keys)?;
        let folders = self.folders(&settings)?;
        let held = LockFile::acquire(self.config)?;
        let before = match held.load()? {
            Some(before) => before,
            // The caller reports each engine of the config that has no pin.
            None if locked => return Ok(EngineSyncReport::default()),
            None => return Err(InstallationError::NoLock { lock: held.path().to_owned() }),
        };
        let mut report = EngineSyncReport::default();
        let run = EngineSync { installer: self, settings: &settings, keys, folders, locked };
        for pin in before.pins() {
            let result = run.sync(pin, &mut report.entries_changed);
            let result = result.unwrap_or_else(EngineSyncResult::Failed);
            report.engines.push(SyncedEngine { pin: pin.clone(), result });
        }
        let mut lock = before.clone();
        run.folders.set_files(&mut lock);
        report.lock_changed = lock != before;
        // An engine that failed may need the old path, on which it may still be found.
        let has_failed =
            report.engines.iter().any(|it| matches!(it.result, EngineSyncResult::Failed(_)));
        if report.lock_changed && !locked && !has_failed {
            held.write(&lock)?;
        }
        Ok(report)
    }
}

/// One run of `sync`.
struct EngineSync<'a> {
    installer: &'a EngineInstaller<'a>,
    settings: &'a Config,
    keys: TrustedKeys,
    folders: InstallFolders,
    locked: bool,
}

impl EngineSync<'_> {
    fn sync(
        &self,
        pin: &Pin,
        entries_changed: &mut Vec<String>,
    ) -> Result<EngineSyncResult, SyncError> {
        let written = self.settings.entry(&pin.id).and_then(|entry| entry.sha256.as_deref());
        if written.is_some_and(|written| !written.eq_ignore_ascii_case(&pin.sha256)) {
            return Err(SyncError::Conflict { id: pin.id.clone() });
        }
        let installed = self.folders.current.file_path(&pin.id, &pin.sha256);
        let result = match self.find(pin, &installed)? {
            UsableFile::Entered => return Ok(EngineSyncResult::Present),
            UsableFile::Installed => EngineSyncResult::Present,
            UsableFile::Package(package) => {
                // Unlike for `install`, no user has looked at the config that names the folder.
                self.folders.current.check_inside(&self.folders.project)?;
                self.folders.current.put(&package)?;
                EngineSyncResult::Installed { from: package.file.path.clone() }
            }
        };
        if self.needs_entry(pin, &installed) {
            entries_changed.push(pin.id.clone());
            if !self.locked {
                let path = self.folders.recorded_path(&installed);
                self.installer.write_entry(&pin.id, &path, &pin.sha256)?;
                if let Some(entry) = self.settings.entry(&pin.id)
                    && let Some(old) = entry.path.as_ref().filter(|old| **old != installed)
                {
                    self.folders.remove_unused(old);
                }
            }
        }
        Ok(result)
    }

    /// Whether the config's entry leads to another file than the installed one.
    fn needs_entry(&self, pin: &Pin, installed: &Path) -> bool {
        let entered = self.settings.entry(&pin.id).and_then(|entry| entry.path.as_ref());
        let real = |path: &Path| self.folders.recorded_path(path);
        entered.is_none_or(|path| real(path) != real(installed))
    }

    fn find(&self, pin: &Pin, installed: &Path) -> Result<UsableFile, SyncError> {
        let entered = self.settings.entry(&pin.id).and_then(|entry| entry.path.as_deref());
        // Files of earlier versions move into the project.
        let stays = entered.filter(|path| !self.folders.former.contains(path));
        if stays.is_some_and(|path| self.is_usable(path, pin)) {
            return Ok(UsableFile::Entered);
        }
        if self.is_usable(installed, pin) {
            return Ok(UsableFile::Installed);
        }
        let source = match &pin.source {
            Some(source) => Some(self.source_path(source)?),
            // Only the own earlier installation: a stranger's lock may name any absolute path.
            None => entered.filter(|path| self.folders.former.contains(path)).map(Path::to_owned),
        };
        let path = source.filter(|path| pin.source.is_some() || path.is_file());
        let path = path.ok_or_else(|| self.unusable_file(pin, installed, stays))?;
        self.package(&path, pin).map(Box::new).map(UsableFile::Package)
    }

    /// Why a file that exists cannot be used, where the lock file names no source to replace it from.
    fn unusable_file(&self, pin: &Pin, installed: &Path, entered: Option<&Path>) -> SyncError {
        let present = entered.into_iter().chain([installed]).find(|path| path.exists());
        let error = present.and_then(|path| self.package(path, pin).err());
        error.unwrap_or(SyncError::NoSource)
    }

    fn source_path(&self, source: &str) -> Result<PathBuf, SyncError> {
        let missing = |path| SyncError::SourceMissing { path };
        match resolve_source(&self.folders.project, source) {
            Ok(path) if path.exists() => Ok(path),
            Ok(path) => Err(missing(path)),
            Err(SourceError::Unreadable { source: error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Err(missing(source.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file can be used as it is.
    fn is_usable(&self, path: &Path, pin: &Pin) -> bool {
        self.package(path, pin).is_ok()
    }

    /// A file that has the pinned bytes and the signature that is asked for.
    fn package(&self, path: &Path, pin: &Pin) -> Result<EnginePackage, SyncError> {
        let package = EnginePackage::open_pinned(path, &pin.sha256, &self.keys);
        let package = package.map_err(|error| match error {
            PackageError::Load(LoadError::HashMismatch { path, expected, found }) => {
                SyncError::OtherBytes { path, expected, found }
            }
            other => other.into(),
        })?;
        let EngineFile { path, meta, .. } = &package.file;
        if meta.id != pin.id {
            return Err(SyncError::OtherEngine { path: path.clone(), found: meta.id.clone() });
        }
        let is_required = self.settings.plugins.require_signature && package.signer().is_none();
        let is_other = match (&pin.signer, &package.signature) {
            (None, _) => false,
            (Some(_), Signature::Missing) => true,
            // A key that the config no longer lists cannot be checked, but it is still named.
            (Some(pinned), Signature::Trusted(key) | Signature::UnknownKey(key)) => pinned != key,
        };
        if is_required || is_other {
            let signer = pin.signer.clone().filter(|_| is_other);
            return Err(SyncError::NotSigned { path: path.clone(), signer });
        }
        Ok(package)
    }
}
