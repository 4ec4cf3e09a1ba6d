//! Puts a session of opencode's storage together: one file for the session, each message and each part.
//!
//! ```text
//!  storage/session/<project>/<session>.json
//!  storage/message/<session>/<message>.json
//!  storage/part/<message>/<part>.json
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::block::string;

/// Limit for the files of one session: a long day has a few thousand.
const MAX_FILES: usize = 200_000;

/// The document of the session whose file this is; `None` if it is no session file of a storage.
pub(crate) fn read_storage(path: &Path, bytes: &[u8]) -> Option<io::Result<Vec<u8>>> {
    let is_short = bytes.len() as u64 <= ctxhost_files::SMALL_FILE_BYTES;
    let info: Value = is_short.then(|| serde_json::from_slice(bytes).ok()).flatten()?;
    let id = string(&info, "id").filter(|id| is_file_name(id))?;
    info.get("messages").is_none().then_some(())?;
    // From session/<project>/<session>.json.
    let path = path.canonicalize().ok()?;
    let (sessions, storage) = (path.ancestors().nth(2)?, path.ancestors().nth(3)?);
    sessions.ends_with("session").then_some(())?;
    let messages = storage.join("message").join(id);
    is_folder(&messages).then(|| join_files(bytes, storage, &messages))
}

/// Whether it is a folder. Links are not followed: they may lead out of the storage.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

fn join_files(info: &[u8], storage: &Path, messages: &Path) -> io::Result<Vec<u8>> {
    let mut document = Vec::from(b"{\"info\":");
    document.extend_from_slice(info);
    document.extend_from_slice(b",\"messages\":[");
    let mut files = 0;
    for (number, message) in json_files(messages, &mut files)?.iter().enumerate() {
        document.extend_from_slice(if number > 0 { b",{\"info\":" } else { b"{\"info\":" });
        add_file(&mut document, message)?;
        document.extend_from_slice(b",\"parts\":[");
        let parts = storage.join("part").join(message.file_stem().unwrap_or_default());
        // A message without parts has no folder.
        let parts = if is_folder(&parts) { json_files(&parts, &mut files)? } else { Vec::new() };
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                document.push(b',');
            }
            add_file(&mut document, part)?;
        }
        document.extend_from_slice(b"]}");
    }
    document.extend_from_slice(b"]}");
    Ok(document)
}

/// Adds the content of a file. One that is not JSON becomes an empty object, which the import reports.
fn add_file(document: &mut Vec<u8>, path: &Path) -> io::Result<()> {
    let room = ctxhost_files::SESSION_FILE_BYTES.saturating_sub(document.len() as u64);
    let bytes = ctxhost_files::read(path, room)?;
    let is_json = serde_json::from_slice::<&serde_json::value::RawValue>(&bytes).is_ok();
    document.extend_from_slice(if is_json { &bytes } else { b"{}" });
    Ok(())
}

/// The JSON files of a folder, in the order of their names.
fn json_files(folder: &Path, files: &mut usize) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_link = entry.file_type()?.is_symlink();
        if !is_link && path.extension().is_some_and(|extension| extension == "json") {
            *files += 1;
            if *files > MAX_FILES {
                let reason = format!("the session has more than {MAX_FILES} files");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
            }
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether an id can be the name of a folder, without leading out of the storage.
pub(super) fn is_file_name(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
