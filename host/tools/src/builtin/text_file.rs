//! File checks for the built-in tools: regular or not, text or binary.

use std::fs::{self, Metadata};
use std::path::Path;

use crate::error::ToolError;

/// Bytes that are searched for a NUL byte, as git does.
pub(super) const SNIFFED_BYTES: usize = 8 * 1024;

/// The metadata of a regular file; an error for anything else. Reading a pipe would block forever.
pub(super) fn regular_file(path: &Path) -> Result<Metadata, ToolError> {
    let metadata = fs::metadata(path).map_err(|cause| ToolError::io("read", path, cause))?;
    match () {
        () if metadata.is_file() => Ok(metadata),
        () if metadata.is_dir() => Err(ToolError::IsFolder { path: path.to_owned() }),
        () => Err(ToolError::NoRegularFile { path: path.to_owned() }),
    }
}

/// Reads a text file.
pub(super) fn read_text(path: &Path, limit_bytes: u64) -> Result<String, ToolError> {
    let size_bytes = regular_file(path)?.len();
    if size_bytes > limit_bytes {
        return Err(ToolError::TooLarge { path: path.to_owned(), size_bytes, limit_bytes });
    }
    let bytes = fs::read(path).map_err(|cause| ToolError::io("read", path, cause))?;
    String::from_utf8(bytes).map_err(|_| ToolError::Binary { path: path.to_owned(), size_bytes })
}

/// Whether the first bytes are those of a binary file.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    memchr::memchr(0, beginning.get(..SNIFFED_BYTES).unwrap_or(beginning)).is_some()
}

/// The line number of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    memchr::memchr_iter(b'\n', before).count() + 1
}
