//! Which handles the bytes of files name: 64 hex digits in a row, wherever they stand.
//!
//! It is enough that a handle stands somewhere, in a record that is live or not, in a file that is a
//! session or not. So nothing has to be understood to know that something is still of use.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::folder::paths_in;
use super::{BlobError, HANDLE_CHARS, disk_error};

/// How much of a file is read at a time, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// How long a run of digits may grow before its beginning is forgotten, in bytes.
const RUN_BYTES: usize = 4 * 1024;

/// Finds handles in bytes that come piece by piece.
#[derive(Debug, Default)]
pub(super) struct HandleScanner {
    run: Vec<u8>,
}

impl HandleScanner {
    /// Reads more and names every row of 64 digits in it; of a longer row every part.
    pub(super) fn scan(&mut self, bytes: &[u8], mut named: impl FnMut(&str)) {
        for byte in bytes {
            match byte.to_ascii_lowercase() {
                digit @ (b'0'..=b'9' | b'a'..=b'f') => self.run.push(digit),
                _ => self.run.clear(),
            }
            let Some(start) = self.run.len().checked_sub(HANDLE_CHARS) else { continue };
            if let Some(Ok(handle)) = self.run.get(start..).map(std::str::from_utf8) {
                named(handle);
            }
            if self.run.len() >= RUN_BYTES {
                self.run.drain(..=start);
            }
        }
    }
}

/// The handles among `known` that texts name.
pub fn referenced_handles<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    known: &HashSet<String>,
) -> HashSet<String> {
    let mut found = HashSet::new();
    for text in texts {
        HandleScanner::default().scan(text.as_bytes(), |handle| {
            found.extend(known.get(handle).cloned());
        });
    }
    found
}

/// The handles among `known` that a file names.
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

/// The handles among `known` that any file below a folder names; bytes that were put away name none.
///
/// # Errors
///
/// A file that cannot be read might name any of them.
pub(super) fn handles_below(
    folder: &Path,
    store: Option<&Path>,
    known: &HashSet<String>,
) -> Result<HashSet<String>, BlobError> {
    let mut named = HashSet::new();
    for path in files_below(folder, store)? {
        match handles_in_file(&path, known) {
            Ok(found) => named.extend(found),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(disk_error("read", &path)(error));
            }
            Err(_) if is_session(&path) => return Err(BlobError::Vanished { path }),
            // A value that was replaced, a staged file that has its name by now.
            Err(_) => {}
        }
    }
    Ok(named)
}

/// All files below a folder, by path, except those in stores of bytes: that one, and those beside
/// sessions. Links are not followed.
pub(super) fn files_below(folder: &Path, store: Option<&Path>) -> Result<Vec<PathBuf>, BlobError> {
    let is_left_out =
        |path: &PathBuf| store.is_some_and(|store| store == path) || is_blob_folder(path);
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in paths_in(&folder)? {
            match path.symlink_metadata() {
                Ok(found) if found.is_dir() && !is_left_out(&path) => folders.push(path),
                Ok(found) if found.is_file() => files.push(path),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(disk_error("look at", &path)(error)),
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

/// The session that a file or folder belongs to by its name: `s.jsonl.crc` to `s.jsonl`.
pub(super) fn owning_session(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let end = name.find(SESSION_MARK)? + SESSION_MARK.len() - 1;
    Some(path.with_file_name(name.get(..end)?))
}

/// Whether a folder holds bytes by hash, beside a session.
pub(super) fn is_blob_folder(folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name.ends_with(".jsonl.blobs")
}

/// What stands between the name of a session and that of what belongs to it.
const SESSION_MARK: &str = ".jsonl.";
