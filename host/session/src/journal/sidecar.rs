//! Files beside a session: bytes that are set aside, and the new file before it takes the name.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{DiskFile, JournalDisk, OpenMode};
use super::io_error;
use crate::error::SessionError;
use crate::identity;

/// The suffix of a migrated file that has not taken the name yet.
pub(crate) const STAGED_SUFFIX: &str = "migrating";

/// How the suffix of a file begins that is being made and has no name of its own yet.
pub(crate) const NEW_FILE_PREFIX: &str = "new-";

/// Makes a file with its first bytes. It has them when it gets its name, so a kill leaves no session
/// without a header. The folder is not synced yet.
pub(super) fn create_file(
    disk: &dyn JournalDisk,
    path: &Path,
    bytes: &[u8],
) -> io::Result<Box<dyn DiskFile>> {
    let staged = sidecar_path(path, &format!("{NEW_FILE_PREFIX}{}", identity::nonce()));
    let mut file = disk.open(&staged, OpenMode::New)?;
    let named = (|| {
        file.append(bytes)?;
        file.sync()?;
        // A file system without locks has none for anybody else either.
        let _ = file.lock();
        disk.rename_new(&staged, path)
    })();
    if let Err(error) = named {
        // What stays if this fails too is named by fsck.
        let _ = disk.remove(&staged);
        return Err(error);
    }
    Ok(file)
}

/// Writes a file beside, syncs it, and gives it the name: the file is there whole, as it was or as it is. Its
/// folder is not synced yet.
///
/// What is staged has one name, so that a crash leaves one file behind, which the next try removes. For the
/// same reason, and because it stays open and locked, this is no [`ctxhost_files::replace_file`].
pub(crate) fn replace_file(
    disk: &dyn JournalDisk,
    path: &Path,
    staged: &Path,
    mode: Option<u32>,
    bytes: &[u8],
) -> io::Result<Box<dyn DiskFile>> {
    // Left behind by a crash; the lock on the session says that nobody is writing it.
    disk.remove(staged)?;
    let mut file = disk.open(staged, OpenMode::New)?;
    let renamed = (|| {
        file.append(bytes)?;
        if let Some(mode) = mode {
            file.set_mode(mode)?;
        }
        file.sync()?;
        // A file system without locks has none for the old file either.
        let _ = file.lock();
        disk.rename(staged, path)
    })();
    if let Err(error) = renamed {
        // If this fails too, the next try removes the file.
        let _ = disk.remove(staged);
        return Err(error);
    }
    Ok(file)
}

/// Keeps bytes in a file beside the session, once.
pub(crate) fn save_copy(
    disk: &dyn JournalDisk,
    path: &Path,
    suffix: &str,
    bytes: &[u8],
) -> Result<PathBuf, SessionError> {
    for number in 1_u32.. {
        let numbered = if number == 1 { suffix.to_owned() } else { format!("{suffix}.{number}") };
        let aside = sidecar_path(path, &numbered);
        if keep(disk, &aside, bytes).map_err(io_error("keep", &aside))? {
            return Ok(aside);
        }
    }
    Err(io_error("keep", path)(io::ErrorKind::AlreadyExists.into()))
}

/// Whether the file holds these bytes, and lasts. Another file of this name stays as it is.
fn keep(disk: &dyn JournalDisk, aside: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut file = match disk.open(aside, OpenMode::New) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return keep_again(disk, aside, bytes);
        }
        Err(error) => return Err(error),
    };
    let kept = file.append(bytes).and_then(|()| file.sync());
    if let Err(error) = kept.and_then(|()| disk.sync_folder(aside)) {
        // Half a copy would only take the name from the whole one of the next try.
        let _ = disk.remove(aside);
        return Err(error);
    }
    Ok(true)
}

/// A try that failed late may have left the same bytes, unsynced.
fn keep_again(disk: &dyn JournalDisk, aside: &Path, bytes: &[u8]) -> io::Result<bool> {
    if !ctxhost_files::read(aside, bytes.len() as u64).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    disk.open(aside, OpenMode::Existing)?.sync()?;
    disk.sync_folder(aside)?;
    Ok(true)
}

/// The path of a file beside this one: `<rename_new>.<suffix>`.
pub(crate) fn sidecar_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}
