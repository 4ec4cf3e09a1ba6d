//! What a store of bytes needs of a file system, so that tests can let every step of it fail.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::SystemTime;

use tempfile::NamedTempFile;

/// What files are called until all of their bytes are on the disk.
pub(super) const STAGING_PREFIX: &str = ".new-";

/// Results hold whatever the agent saw, so they are their owner's alone.
const FOLDER_MODE: u32 = 0o700;

/// A file system, as far as it is written to.
pub(super) trait Disk: std::fmt::Debug + Send + Sync {
    /// Makes one folder for its owner alone; one that is there stays as it is.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// A new empty file in a folder, for its owner alone.
    fn stage(&self, folder: &Path) -> io::Result<NamedTempFile>;
    /// Writes all bytes.
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Waits until what was written is on the disk.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Gives a staged file its name, in place of what has it.
    fn rename(&self, staged: NamedTempFile, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder last.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes a file as young as if it were new.
    fn touch(&self, path: &Path) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE)),
            Err(_) if path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn stage(&self, folder: &Path) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(STAGING_PREFIX).tempfile_in(folder)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, staged: NamedTempFile, path: &Path) -> io::Result<()> {
        staged.persist(path).map(drop).map_err(|error| error.error)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
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

/// Puts a file in the place of another one, or of none: after a crash there is the old one or the new
/// one, whole. Folders that are missing are made.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(&RealDisk, path, bytes)
}

pub(super) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    make_folders(disk, folder)?;
    let mut staged = disk.stage(folder)?;
    disk.write(staged.as_file_mut(), bytes)?;
    disk.sync(staged.as_file())?;
    disk.rename(staged, path)?;
    disk.sync_folder(folder)
}

/// Makes a folder and those above it that are not there, so that none is gone after a crash.
pub(super) fn make_folders(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let folder = std::path::absolute(folder)?;
    if let Some(above) = folder.parent() {
        make_folders(disk, above)?;
        disk.make_folder(&folder)?;
        disk.sync_folder(above)?;
    }
    Ok(())
}
