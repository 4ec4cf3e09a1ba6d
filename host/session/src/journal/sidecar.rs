//! Files beside a session: atomic creation and replacement, and copies of removed bytes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{DiskFile, JournalDisk, OpenMode};
use crate::error::{SessionError, io_error};
use crate::identity;

/// The suffix of the staging file of a migration or repair.
pub(crate) const STAGED_SUFFIX: &str = "migrating";

/// The prefix of the suffix of a new file before it is renamed.
pub(crate) const NEW_FILE_PREFIX: &str = "new-";

/// Creates a file with its first bytes. It is written and synced before it gets its name, so that a crash
/// leaves no session without a header. The folder is not synced yet.
pub(super) fn create_file(
    disk: &dyn JournalDisk,
    path: &Path,
    bytes: &[u8],
) -> io::Result<Box<dyn DiskFile>> {
    let staged = sidecar_path(path, &format!("{NEW_FILE_PREFIX}{}", identity::nonce()));
    let mut file = disk.open(&staged, OpenMode::New)?;
    let renamed = (|| {
        file.append(bytes)?;
        file.sync()?;
        // Fails only on file systems without locks, where no other process can lock it either.
        let _ = file.lock();
        disk.rename_new(&staged, path)
    })();
    if let Err(error) = renamed {
        // If this fails too, fsck reports the file.
        let _ = disk.remove(&staged);
        return Err(error);
    }
    Ok(file)
}

/// Replaces a file atomically by one with these bytes. The folder is not synced yet.
///
/// Unlike [`ctxhost_files::replace_file`] it returns the new file open and locked, and the staging file has a
/// fixed name, so that the next attempt removes what a crash left.
pub(crate) fn replace_file(
    disk: &dyn JournalDisk,
    path: &Path,
    staged: &Path,
    mode: Option<u32>,
    bytes: &[u8],
) -> io::Result<Box<dyn DiskFile>> {
    // Left by a crash: no other process writes it, because the session is locked.
    disk.remove(staged)?;
    let mut file = disk.open(staged, OpenMode::New)?;
    let renamed = (|| {
        file.append(bytes)?;
        if let Some(mode) = mode {
            file.set_mode(mode)?;
        }
        file.sync()?;
        // Fails only on file systems without locks, where the old file is not locked either.
        let _ = file.lock();
        disk.rename(staged, path)
    })();
    if let Err(error) = renamed {
        // If this fails too, the next attempt removes the file.
        let _ = disk.remove(staged);
        return Err(error);
    }
    Ok(file)
}

/// Saves bytes in a file beside the session and returns its path; bytes that are saved already are not
/// saved twice.
pub(crate) fn save_copy(
    disk: &dyn JournalDisk,
    path: &Path,
    suffix: &str,
    bytes: &[u8],
) -> Result<PathBuf, SessionError> {
    for number in 1_u32.. {
        let numbered = if number == 1 { suffix.to_owned() } else { format!("{suffix}.{number}") };
        let copy = sidecar_path(path, &numbered);
        if write_copy(disk, &copy, bytes).map_err(io_error("write", &copy))? {
            return Ok(copy);
        }
    }
    Err(io_error("save a copy of", path)(io::ErrorKind::AlreadyExists.into()))
}

/// Writes and syncs a copy; `false` if another file has its name.
fn write_copy(disk: &dyn JournalDisk, copy: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut file = match disk.open(copy, OpenMode::New) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return sync_existing(disk, copy, bytes);
        }
        Err(error) => return Err(error),
    };
    let written = file.append(bytes).and_then(|()| file.sync());
    if let Err(error) = written.and_then(|()| disk.sync_folder(copy)) {
        // A partial copy would make the next attempt use another name.
        let _ = disk.remove(copy);
        return Err(error);
    }
    Ok(true)
}

/// Syncs an existing copy with the same bytes, which an attempt that failed late may have left.
fn sync_existing(disk: &dyn JournalDisk, copy: &Path, bytes: &[u8]) -> io::Result<bool> {
    if !ctxhost_files::read(copy, bytes.len() as u64).is_ok_and(|found| found == bytes) {
        return Ok(false);
    }
    disk.open(copy, OpenMode::Existing)?.sync()?;
    disk.sync_folder(copy)?;
    Ok(true)
}

/// The path of a file beside a session: `<name>.<suffix>`.
pub(crate) fn sidecar_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}
