//! Replaces files atomically: after a crash there is the old or the new file, complete.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ctxhost_platform::files::{self, PRIVATE_FILE, PRIVATE_FOLDER};
use tempfile::NamedTempFile;

/// The name prefix of staging files.
pub const STAGING_PREFIX: &str = ".new-";

/// The usual mode of new files before the umask.
const OPEN_FILE: u32 = 0o666;

/// The mode of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// 0600. Missing folders are created with mode 0700.
    Private,
    /// This mode, independent of the umask.
    Mode(u32),
    /// The mode of the replaced file, or that of the umask for a new file.
    Inherited,
}

/// A file could not be replaced. It is unchanged, unless only the sync of its folder failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {}: {source}", path.display())]
pub struct ReplaceError {
    /// The failed step, as a verb.
    pub step: &'static str,
    /// The file to be replaced.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}

/// Writes a new file beside `path`, syncs it, renames it and syncs the folder.
///
/// A symbolic link is replaced, not its target. A file of the administrator belongs to the owner of the folder, with
/// [`FileAccess::Inherited`] to that of the replaced file.
///
/// # Errors
///
/// [`ReplaceError`].
pub fn replace_file(path: &Path, bytes: &[u8], access: FileAccess) -> Result<(), ReplaceError> {
    replace_file_on(&OsFileSystem, path, bytes, access)
}

/// [`replace_file`] on any file system.
///
/// # Errors
///
/// As [`replace_file`].
pub fn replace_file_on(
    disk: &dyn FileSystem,
    path: &Path,
    bytes: &[u8],
    access: FileAccess,
) -> Result<(), ReplaceError> {
    let failed = |step| move |source| ReplaceError { step, path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if access == FileAccess::Private {
        create_folders(disk, folder).map_err(failed("create the folder of"))?;
    }
    let mode = match access {
        FileAccess::Private => None,
        FileAccess::Mode(mode) => Some(mode),
        FileAccess::Inherited => fs::metadata(path).ok().and_then(|old| files::mode(&old)),
    };
    let is_open = access == FileAccess::Inherited && mode.is_none();
    // Private until its mode is set, because it gets its content before.
    let staged_mode = if is_open { OPEN_FILE } else { PRIVATE_FILE };
    let mut staged = disk.stage(folder, staged_mode).map_err(failed("create a file beside"))?;
    disk.write(staged.as_file_mut(), bytes).map_err(failed("write"))?;
    if let Some(mode) = mode {
        disk.set_mode(staged.as_file(), mode).map_err(failed("set the mode of"))?;
    }
    // Otherwise a service could not read what the administrator writes into its folder, nor a user a file of his own
    // that the administrator has edited.
    let like = if access == FileAccess::Inherited && path.exists() { path } else { folder };
    match disk.give_to_owner_of(staged.as_file(), like) {
        // Readable for others as before; the file system may have no owners.
        Err(_) if access != FileAccess::Private => {}
        given => given.map_err(failed("set the owner of"))?,
    }
    disk.sync(staged.as_file()).map_err(failed("sync"))?;
    disk.rename(staged, path).map_err(failed("replace"))?;
    disk.sync_folder(folder).map_err(failed("sync the folder of"))
}

/// Creates a folder and its missing parents with mode 0700, each synced so that it survives a crash.
///
/// # Errors
///
/// The error of the file system.
pub fn create_folders(disk: &dyn FileSystem, folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let folder = std::path::absolute(folder)?;
    if let Some(above) = folder.parent() {
        create_folders(disk, above)?;
        disk.create_folder(&folder)?;
        disk.sync_folder(above)?;
    }
    Ok(())
}

/// The file operations of a replacement, so that tests can make every one of them fail.
pub trait FileSystem: std::fmt::Debug + Send + Sync {
    /// Creates a folder with mode 0700; an existing one is left unchanged.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates a staging file in a folder, with this mode restricted by the umask.
    fn stage(&self, folder: &Path, mode: u32) -> io::Result<NamedTempFile>;
    /// Writes all bytes.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Sets the mode of a file.
    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()>;
    /// Gives a new file to the owner of the file or folder at `like`, if this process is the administrator.
    fn give_to_owner_of(&self, file: &File, like: &Path) -> io::Result<()> {
        files::give_to_owner_of(file, like)
    }
    /// Syncs a file to disk.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Renames a staging file, replacing the target.
    fn rename(&self, staged: NamedTempFile, path: &Path) -> io::Result<()>;
    /// Syncs a folder, so that names in it survive a crash.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Sets the modification time of a file to now.
    fn touch(&self, path: &Path) -> io::Result<()>;
    /// Removes a file; a missing one is not an error.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Debug)]
pub struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match files::create_private_folder(path) {
            Ok(()) => files::set_path_mode(path, PRIVATE_FOLDER),
            Err(_) if path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn stage(&self, folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(STAGING_PREFIX);
        if let Some(permissions) = files::permissions(mode) {
            builder.permissions(permissions);
        }
        builder.tempfile_in(folder)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        files::set_mode(file, mode)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, staged: NamedTempFile, path: &Path) -> io::Result<()> {
        staged.persist(path).map(drop).map_err(|error| error.error)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        match files::sync_folder(folder) {
            // The folder is writable but not readable, or the file system cannot sync folders.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::Unsupported
                ) =>
            {
                Ok(())
            }
            synced => synced,
        }
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        File::options().append(true).open(path)?.set_modified(SystemTime::now())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_new_file_has_the_requested_mode() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        replace_file(&at("a/b/private"), b"1", FileAccess::Private).unwrap();
        assert_eq!(
            (mode(&at("a/b/private")), mode(&at("a/b")), mode(&at("a"))),
            (0o600, 0o700, 0o700)
        );
        replace_file(&at("shared"), b"1", FileAccess::Mode(0o644)).unwrap();
        assert_eq!(mode(&at("shared")), 0o644);
        fs::write(at("by the umask"), "").unwrap();
        replace_file(&at("new"), b"1", FileAccess::Inherited).unwrap();
        assert_eq!(mode(&at("new")), mode(&at("by the umask")));
        fs::set_permissions(at("new"), Permissions::from_mode(0o751)).unwrap();
        replace_file(&at("new"), b"2", FileAccess::Inherited).unwrap();
        assert_eq!((mode(&at("new")), fs::read(at("new")).unwrap()), (0o751, b"2".to_vec()));
    }

    #[test]
    fn a_file_of_the_administrator_belongs_to_the_owner_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let owner = |name: &str| {
            let found = fs::metadata(at(name)).unwrap();
            (found.uid(), found.gid())
        };
        let give = |path: &Path, user: u32| std::os::unix::fs::chown(path, Some(user), Some(user));
        if fs::metadata(folder.path()).unwrap().uid() != 0 || give(folder.path(), 4321).is_err() {
            return;
        }
        for access in [FileAccess::Private, FileAccess::Mode(0o644), FileAccess::Inherited] {
            replace_file(&at("a/state.json"), b"1", access).unwrap();
            replace_file(&at("a/state.json"), b"2", access).unwrap();
            assert_eq!((owner("a"), owner("a/state.json")), ((4321, 4321), (4321, 4321)));
            fs::remove_file(at("a/state.json")).unwrap();
        }
        fs::write(at("config"), "old").unwrap();
        give(&at("config"), 5432).unwrap();
        replace_file(&at("config"), b"new", FileAccess::Inherited).unwrap();
        assert_eq!(owner("config"), (5432, 5432), "an edited file stays that of its user");
    }

    #[test]
    fn a_link_is_replaced_and_what_it_points_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink(at("file"), at("link")).unwrap();
        replace_file(&at("link"), b"new", FileAccess::Private).unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        assert_eq!(fs::read(at("link")).unwrap(), b"new");
    }

    #[test]
    fn what_fails_is_named_with_its_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        let error = replace_file(&path, b"", FileAccess::Mode(0o644)).unwrap_err();
        assert_eq!((error.step, &error.path), ("replace", &path));
        let message = io::Error::from(error).to_string();
        assert!(message.starts_with(&format!("cannot replace {}: ", path.display())), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let error =
            replace_file(&folder.path().join("no/file"), b"", FileAccess::Inherited).unwrap_err();
        assert_eq!(error.step, "create a file beside");
    }
}
