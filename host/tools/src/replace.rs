//! Replaces files atomically: readers see the old or the new content.

use std::fs;
use std::path::Path;

use ctxhost_files::{FileAccess, replace_file};
use parking_lot::Mutex;

use super::error::ToolError;

/// Serializes file changes: two parallel edits of one file must not overwrite each other.
pub(super) fn with_write_lock<T>(work: impl FnOnce() -> T) -> T {
    static WRITING: Mutex<()> = Mutex::new(());
    let _guard = WRITING.lock();
    work()
}

/// Writes a file and creates its folders. Returns whether the file existed.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<bool, ToolError> {
    if path.is_dir() {
        return Err(ToolError::IsFolder { path: path.to_owned() });
    }
    // A link is kept: its target is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(ToolError::NoRegularFile { path: target });
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = folder.map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        replace_file(&target, bytes, FileAccess::Inherited).map_err(|error| error.source)
    });
    written.map_err(|cause| ToolError::Io { doing: "write", path: target, cause })?;
    Ok(old.is_some())
}
