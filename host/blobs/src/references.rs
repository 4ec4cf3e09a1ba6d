//! Finds references to blobs in files: 64 hex digits in a row, at any position.
//!
//! Any occurrence counts, in live or compacted records and in files of any format, so that no format has to be
//! parsed to know that a blob is still needed.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::folder::paths_in;
use super::{BlobError, HANDLE_CHARS, disk_error};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Longest run of digits that is buffered.
const RUN_BYTES: usize = 4 * 1024;

/// Finds handles in bytes that arrive in chunks.
#[derive(Debug, Default)]
pub(super) struct HandleScanner {
    run: Vec<u8>,
}

impl HandleScanner {
    /// Scans more bytes and reports each sequence of 64 digits, including overlapping ones.
    pub(super) fn scan(&mut self, bytes: &[u8], mut report: impl FnMut(&str)) {
        for byte in bytes {
            // Handles are written in lower case, but other programs may print hashes in upper case.
            match byte.to_ascii_lowercase() {
                digit @ (b'0'..=b'9' | b'a'..=b'f') => self.run.push(digit),
                _ => self.run.clear(),
            }
            let Some(start) = self.run.len().checked_sub(HANDLE_CHARS) else { continue };
            if let Some(Ok(handle)) = self.run.get(start..).map(std::str::from_utf8) {
                report(handle);
            }
            if self.run.len() >= RUN_BYTES {
                // The last 63 digits stay: they may be the start of another handle.
                self.run.drain(..=start);
            }
        }
    }
}

/// The handles among `known` that occur in texts.
pub fn referenced_handles<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    known: &HashSet<String>,
) -> HashSet<String> {
    let mut found = HashSet::new();
    for text in texts {
        HandleScanner::default().scan(text.as_bytes(), |handle| {
            // Any 64 hexadecimal digits count, wherever they stand: a blob too many costs space, one too few costs history.
            found.extend(known.get(handle).cloned());
        });
    }
    found
}

/// The handles among `known` that occur in a file.
pub(super) fn handles_in_file(path: &Path, known: &HashSet<String>) -> io::Result<HashSet<String>> {
    let (mut file, mut found) = (ctxhost_files::open(path)?, HashSet::new());
    let (mut chunk, mut mentions) = (vec![0; CHUNK_BYTES], HandleScanner::default());
    loop {
        let count = match file.read(&mut chunk) {
            Ok(0) => return Ok(found),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        mentions.scan(chunk.get(..count).unwrap_or_default(), |handle| {
            found.extend(known.get(handle).cloned());
        });
    }
}

/// The handles among `known` that occur in any file below a folder, except in blobs.
///
/// # Errors
///
/// If a file cannot be read, because it may contain any of them.
pub(super) fn handles_below(
    folder: &Path,
    store: Option<&Path>,
    known: &HashSet<String>,
) -> Result<HashSet<String>, BlobError> {
    let mut handles = HashSet::new();
    for path in files_below(folder, store)? {
        match handles_in_file(&path, known) {
            Ok(found) => handles.extend(found),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(disk_error("read", &path)(error));
            }
            Err(_) if is_session(&path) => return Err(BlobError::Vanished { path }),
            // A replaced file, or a staging file that was renamed meanwhile.
            Err(_) => {}
        }
    }
    Ok(handles)
}

/// All files below a folder, sorted by path, except those in blob folders: `store` and those beside sessions.
/// Links are not followed.
pub(super) fn files_below(folder: &Path, store: Option<&Path>) -> Result<Vec<PathBuf>, BlobError> {
    let is_skipped =
        |path: &PathBuf| store.is_some_and(|store| store == path) || is_blob_folder(path);
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in paths_in(&folder)? {
            match path.symlink_metadata() {
                // Links are not followed: a loop would never end, and what they lead to belongs to someone else.
                Ok(found) if found.is_dir() && !is_skipped(&path) => folders.push(path),
                Ok(found) if found.is_file() => files.push(path),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(disk_error("inspect", &path)(error)),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file is a session.
pub(super) fn is_session(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

/// The session that a sidecar file or folder belongs to by its name: `s.jsonl` for `s.jsonl.crc`.
pub(super) fn owning_session(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let end = name.find(SIDECAR_SEPARATOR)? + SIDECAR_SEPARATOR.len() - 1;
    Some(path.with_file_name(name.get(..end)?))
}

/// Whether a folder is the blob folder of a session.
pub(super) fn is_blob_folder(folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name.ends_with(".jsonl.blobs")
}

/// Separates the name of a session from the suffix of a sidecar file.
const SIDECAR_SEPARATOR: &str = ".jsonl.";
