//! A file replaced as a whole: readers see the old text or the new one and nothing between.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::Builder;

use super::error::ToolError;

/// What a new file may be opened for, before the umask: what any other program would make it.
const NEW_FILE_MODE: u32 = 0o666;

/// Does work on files alone: two edits of one file, called side by side, must not lose each other.
pub(super) fn exclusively<T>(work: impl FnOnce() -> T) -> T {
    static WRITING: Mutex<()> = Mutex::new(());
    let _guard = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    work()
}

/// Writes a file and the folders above it. Says whether the file was there before.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<bool, ToolError> {
    if path.is_dir() {
        return Err(ToolError::IsFolder { path: path.to_owned() });
    }
    // A link stays a link: what it points to is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(ToolError::NoRegularFile { path: target });
    }
    let permissions = old.as_ref().map(fs::Metadata::permissions);
    write(&target, bytes, permissions).map_err(|cause| ToolError::Io {
        doing: "write",
        path: target,
        cause,
    })?;
    Ok(old.is_some())
}

fn write(target: &Path, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&folder)?;
    let mode = Permissions::from_mode(NEW_FILE_MODE);
    let mut file = Builder::new().prefix(".ctxhost-").permissions(mode).tempfile_in(&folder)?;
    file.write_all(bytes)?;
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(target).map_err(|error| error.error)?;
    Ok(())
}
