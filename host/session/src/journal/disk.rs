//! The file operations of a journal, behind traits so that tests can make every one of them fail.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use ctxhost_files::{FileLines, check_regular, read_open_lines};
use ctxhost_platform::files::{
    self, LinkPolicy, create_new, create_private_folder, file_identity, open_options,
    open_or_create, path_identity,
};

// Sessions contain everything the agent read, so only their owner may read them.
pub(crate) use ctxhost_platform::files::{
    PRIVATE_FILE as FILE_MODE, PRIVATE_FOLDER as FOLDER_MODE,
};

/// A file system.
pub(crate) trait JournalDisk: std::fmt::Debug + Send + Sync {
    /// Opens a file for reading and appending; never through a link.
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file; fails if the target exists.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; a missing one is not an error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Syncs the folder of this path, so that names in it survive a crash.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder with mode 0700; an existing one is left unchanged.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
}

/// Which files an open accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Existing files only.
    Existing,
    /// Creates the file; fails if it exists.
    New,
    /// Opens or creates the file.
    Any,
}

/// An open file.
pub(crate) trait DiskFile: std::fmt::Debug + Send + Sync {
    /// Reads the file.
    fn read(&mut self) -> io::Result<Vec<u8>>;
    /// Reads its lines except those above the length limit.
    fn read_lines(&mut self) -> io::Result<FileLines>;
    /// Its current length.
    fn length_bytes(&self) -> io::Result<u64>;
    /// Appends all bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Syncs written data to disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates it.
    fn truncate(&mut self, length_bytes: u64) -> io::Result<()>;
    /// Its permission bits; the private ones where files have none.
    fn mode(&self) -> io::Result<u32>;
    /// Sets its permission bits, ignoring the umask.
    fn set_mode(&self, mode: u32) -> io::Result<()>;
    /// Whether the path refers to it.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
    /// Takes the exclusive lock, which the kernel releases when the file is closed or the process ends.
    fn lock(&self) -> Result<(), TryLockError>;
    /// Releases the lock.
    fn unlock(&self) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Debug)]
pub(crate) struct OsJournalDisk;

impl JournalDisk for OsJournalDisk {
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let is_new = opening == OpenMode::New;
        let mut options = open_options(LinkPolicy::Refuse);
        // With O_APPEND a second writer, possible where locks do not work, overwrites nothing.
        options.read(true).append(true);
        let file = match opening {
            OpenMode::Any => open_or_create(&mut options, path)?,
            OpenMode::Existing => options.open(path)?,
            OpenMode::New => create_new(&mut options, path)?,
        };
        check_regular(&file)?;
        let metadata = file.metadata()?;
        // The umask restricts the mode of a new file, and an old one may have been opened to others.
        let is_open = files::mode(&metadata).is_some_and(|mode| mode & 0o777 != FILE_MODE);
        let is_ours = opening != OpenMode::Existing && is_open;
        if is_ours && let Err(error) = files::set_mode(&file, FILE_MODE) {
            if is_new {
                // Still empty: removing it is better than a file that others may read.
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
        Ok(Box::new(OsJournalFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        files::rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) => files::sync_folder(folder),
            None => Ok(()),
        }
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match create_private_folder(path) {
            // The umask has restricted the mode.
            Ok(()) => files::set_path_mode(path, FOLDER_MODE),
            Err(_) if path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Creates a folder and its missing parents, each synced so that it survives a crash.
pub(crate) fn create_folders(disk: &dyn JournalDisk, path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    missing.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()).try_for_each(
        |folder| {
            disk.create_folder(folder)?;
            disk.sync_folder(&std::path::absolute(folder)?)
        },
    )
}

#[derive(Debug)]
struct OsJournalFile(File);

impl DiskFile for OsJournalFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_lines(&mut self) -> io::Result<FileLines> {
        self.0.rewind()?;
        read_open_lines(&self.0, self.0.metadata()?.len())
    }

    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // fdatasync also writes the length of the file, and skips the times, which nothing needs.
        self.0.sync_data()
    }

    fn truncate(&mut self, length_bytes: u64) -> io::Result<()> {
        self.0.set_len(length_bytes)
    }

    fn mode(&self) -> io::Result<u32> {
        Ok(files::mode(&self.0.metadata()?).map_or(FILE_MODE, |mode| mode & 0o777))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        files::set_mode(&self.0, mode)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = file_identity(&self.0)?;
        match path_identity(path) {
            Ok(there) => Ok(there == own),
            // A folder of the path may have been replaced by a file.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> Result<(), TryLockError> {
        self.0.try_lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }
}
