//! File checks for the built-in tools: regular or not, text or binary.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read};
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
    let bytes = read_bytes(path, limit_bytes)?;
    String::from_utf8(bytes).map_err(|_| ToolError::Binary { path: path.to_owned(), size_bytes })
}

/// Reads a regular file. The limit applies to what is read: files in /proc have the length 0, and others grow.
pub(super) fn read_bytes(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ToolError> {
    ctxhost_files::read(path, limit_bytes).map_err(|cause| match cause.kind() {
        ErrorKind::FileTooLarge => {
            ToolError::LongerThanLimit { path: path.to_owned(), limit_bytes }
        }
        _ => ToolError::io("read", path, cause),
    })
}

/// What a search reads of a file.
pub(super) enum SearchedFile {
    /// All of it.
    Text(Vec<u8>),
    /// Only that it is binary.
    Binary,
    /// Only that it has more bytes than the limit.
    TooLarge,
}

/// Reads a regular file for a search. Of a binary file only the beginning is read.
pub(super) fn read_for_search(path: &Path, limit_bytes: u64) -> io::Result<SearchedFile> {
    let file = ctxhost_files::open(path)?;
    if file.metadata()?.len() > limit_bytes {
        return Ok(SearchedFile::TooLarge);
    }
    let mut bytes = Vec::new();
    (&file).take(SNIFFED_BYTES as u64).read_to_end(&mut bytes)?;
    if is_binary(&bytes) {
        return Ok(SearchedFile::Binary);
    }
    // One byte more shows that there are too many.
    let rest = limit_bytes.saturating_sub(bytes.len() as u64).saturating_add(1);
    file.take(rest).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= limit_bytes;
    Ok(if fits { SearchedFile::Text(bytes) } else { SearchedFile::TooLarge })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_a_length_is_limited_by_what_is_read() {
        let path = Path::new("/proc/self/status");
        let error = read_text(path, 10).unwrap_err().to_string();
        assert_eq!(error, "/proc/self/status has more than the limit of 10 bytes; use `shell`");
        assert!(read_text(path, 1 << 20).unwrap().starts_with("Name:"));
        let searched = |limit| read_for_search(path, limit).unwrap();
        assert!(matches!(searched(10), SearchedFile::TooLarge));
        assert!(
            matches!(searched(1 << 20), SearchedFile::Text(text) if text.starts_with(b"Name:"))
        );
        assert!(read_for_search(Path::new("/dev/zero"), 10).is_err());
    }
}
