//! The folder of installed engines: one for each config, private to its owner.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ctxhost_files::{FileAccess, ReplaceError, replace_file};
use sha2::{Digest as _, Sha256};

use super::package::EnginePackage;
use super::signature::TrustedKeys;

/// The digits of a digest in a file name: enough to distinguish builds.
const NAME_DIGITS: usize = 12;

/// The folder and its files are private. They are never executed: the loader makes private copies.
const FOLDER_MODE: u32 = 0o700;

/// An operation on an installed file failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FolderError {
    /// The operation, as a verb.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl From<ReplaceError> for FolderError {
    fn from(ReplaceError { step, path, source }: ReplaceError) -> Self {
        FolderError { action: step, path, source }
    }
}

/// The folder of one config.
#[derive(Clone, Debug)]
pub struct InstallFolder {
    path: PathBuf,
}

impl InstallFolder {
    /// The folder that the config names.
    pub fn new(path: &Path) -> InstallFolder {
        InstallFolder { path: path.into() }
    }

    /// The default folder of a config, below the state folder. Each config has its own, so that
    /// uninstalling in one does not affect another.
    pub fn for_config(state: &Path, config: &Path) -> InstallFolder {
        // By its folder, because the config itself may not exist yet.
        let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let whole = whole.join(config.file_name().unwrap_or_default());
        let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = name.get(..NAME_DIGITS).unwrap_or_default();
        InstallFolder { path: state.join("engines").join("installed").join(name) }
    }

    /// Writes the bytes that were read, under a name of their own, with the signature beside the
    /// original.
    ///
    /// # Errors
    ///
    /// [`FolderError`].
    pub fn put(&self, package: &EnginePackage) -> Result<PathBuf, FolderError> {
        let file = &package.file;
        let digits = file.sha256.get(..NAME_DIGITS).unwrap_or_default();
        let path = self.path.join(format!("{}-{digits}.so", file.meta.id));
        let written = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError { action: "write", path, source }
        };
        self.make().map_err(written(&self.path))?;
        // The signature first: a library must not be there without the signature that vouches for
        // it.
        if let Ok(signature) = ctxhost_files::read(
            &TrustedKeys::signature_path(&file.path),
            ctxhost_files::SMALL_FILE_BYTES,
        ) {
            let beside = TrustedKeys::signature_path(&path);
            replace_file(&beside, &signature, FileAccess::Private)?;
        }
        replace_file(&path, file.image(), FileAccess::Private)?;
        fs::canonicalize(&path).map_err(written(&path))
    }

    /// Whether a file is in this folder.
    pub fn contains(&self, file: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        file.parent().is_some_and(|folder| real(folder) == real(&self.path))
    }

    /// Removes an installed file with its signature. A file outside this folder is left alone.
    ///
    /// # Errors
    ///
    /// [`FolderError`].
    pub fn remove(&self, file: &Path) -> Result<(), FolderError> {
        if !self.contains(file) {
            return Ok(());
        }
        for path in [TrustedKeys::signature_path(file), file.to_owned()] {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(FolderError { action: "remove", path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates the folder, and makes an existing one private.
    fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.path)?;
        fs::set_permissions(&self.path, Permissions::from_mode(FOLDER_MODE))
    }
}
