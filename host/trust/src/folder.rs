//! Where installed engines are kept: one folder of one config, for its owner alone.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ctxhost_files::{FileAccess, ReplaceError, replace_file};
use sha2::{Digest as _, Sha256};

use super::package::EnginePackage;
use super::signature::TrustedKeys;

/// How much of a digest a name holds: enough to tell builds apart, and to be read aloud.
const NAME_DIGITS: usize = 12;

/// The folder is its owner's, and so is what is in it. Nothing is executed from here: what is loaded
/// is a private copy.
const FOLDER_MODE: u32 = 0o700;

/// A file that could not be put there or taken away.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FolderError {
    /// What failed, as a verb.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
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
    /// A folder that the config names.
    pub fn new(path: &Path) -> InstallFolder {
        InstallFolder { path: path.into() }
    }

    /// The folder of a config below the state folder. Each config has its own, so that none takes the
    /// engines of another away.
    pub fn for_config(state: &Path, config: &Path) -> InstallFolder {
        // By its folder: the config itself may not be there yet.
        let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let whole = whole.join(config.file_name().unwrap_or_default());
        let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = name.get(..NAME_DIGITS).unwrap_or_default();
        InstallFolder { path: state.join("engines").join("installed").join(name) }
    }

    /// Puts the very bytes that were read there, under a name of their own, with the signature that
    /// stood beside them.
    ///
    /// # Errors
    ///
    /// [`FolderError`]; nothing is there that was not before.
    pub fn put(&self, package: &EnginePackage) -> Result<PathBuf, FolderError> {
        let file = &package.file;
        let digits = file.sha256.get(..NAME_DIGITS).unwrap_or_default();
        let path = self.path.join(format!("{}-{digits}.so", file.meta.id));
        let written = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError { action: "write", path, source }
        };
        self.make().map_err(written(&self.path))?;
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

    /// Whether a file is one of this folder.
    pub fn contains(&self, file: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        file.parent().is_some_and(|folder| real(folder) == real(&self.path))
    }

    /// Takes an installed file away, with its signature. One that is gone, or that was never put here,
    /// is left alone.
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

    /// The folder is its owner's even where it was there already.
    fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.path)?;
        fs::set_permissions(&self.path, Permissions::from_mode(FOLDER_MODE))
    }
}
