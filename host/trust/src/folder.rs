//! The folder of installed engines: one for each project, private to its owner.

use std::env::consts::DLL_SUFFIX;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use ctxhost_files::{FileAccess, ReplaceError, replace_file};
use ctxhost_platform::files::create_private_folders;
use sha2::{Digest as _, Sha256};

use super::package::EnginePackage;
use super::signature::TrustedKeys;

/// The digits of a digest in a file name: enough to distinguish builds.
const NAME_DIGITS: usize = 12;

/// The folder of a project that holds its installed engines, and the folder in it.
const PROJECT_FOLDER: [&str; 2] = [".ctxhost", "engines"];

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
    /// Whether git should ignore the folder: one that the user named may be committed.
    is_ignored: bool,
}

impl InstallFolder {
    /// The folder that the config names.
    pub fn new(path: &Path) -> InstallFolder {
        InstallFolder { path: path.into(), is_ignored: false }
    }

    /// The default folder of the configs in a folder: beside their lock file, so that both hold paths
    /// that are valid in every checkout.
    pub fn in_project(project: &Path) -> InstallFolder {
        let [outer, inner] = PROJECT_FOLDER;
        InstallFolder { path: project.join(outer).join(inner), is_ignored: true }
    }

    /// The default folder of earlier versions, below the state folder.
    pub fn in_state(state: &Path, config: &Path) -> InstallFolder {
        let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let whole = whole.join(config.file_name().unwrap_or_default());
        let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = name.get(..NAME_DIGITS).unwrap_or_default();
        InstallFolder::new(&state.join("engines").join("installed").join(name))
    }

    /// The path of an engine's file in this folder. Builds have different paths.
    pub fn file_path(&self, id: &str, sha256: &str) -> PathBuf {
        let digits = sha256.get(..NAME_DIGITS).unwrap_or_default().to_ascii_lowercase();
        self.path.join(format!("{id}-{digits}{DLL_SUFFIX}"))
    }

    /// Fails if the folder is not below a project (canonical), links included: a checkout may bring
    /// links.
    ///
    /// # Errors
    ///
    /// [`FolderError`].
    pub fn check_inside(&self, project: &Path) -> Result<(), FolderError> {
        let failed = |source| FolderError { action: "write", path: self.path.clone(), source };
        let whole = std::path::absolute(&self.path).map_err(failed)?;
        // The nearest folder that exists: the others are created below it.
        let real = whole.ancestors().find_map(|folder| folder.canonicalize().ok());
        let has_parents = whole.components().any(|part| part == Component::ParentDir);
        if !has_parents && real.is_some_and(|real| real.starts_with(project)) {
            return Ok(());
        }
        let message = format!("it is outside {}", project.display());
        Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, message)))
    }

    /// Writes the bytes that were read, under a name of their own, with the signature beside the
    /// original.
    ///
    /// # Errors
    ///
    /// [`FolderError`].
    pub fn put(&self, package: &EnginePackage) -> Result<PathBuf, FolderError> {
        let file = &package.file;
        let path = self.file_path(&file.meta.id, &file.sha256);
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

    /// Creates the folder, which is private as its files are. They are never executed: the loader makes private
    /// copies. The mode of an existing one is left alone: the user may have named a shared
    /// folder, and the loader refuses one that every user can write.
    fn make(&self) -> io::Result<()> {
        create_private_folders(&self.path)?;
        if let Some(outer) = self.path.parent().filter(|_| self.is_ignored) {
            let ignore = outer.join(".gitignore");
            if fs::symlink_metadata(&ignore).is_err() {
                fs::write(ignore, "*\n")?;
            }
        }
        Ok(())
    }
}
