//! Finds the original content behind a truncation notice by the handle that the notice names.
//!
//! A handle is the id of a session entry or the hash of a stored blob. A unique prefix is enough.

use std::path::Path;

use ctxhost_blobs::{self as blobs, BlobError, SessionBlobs};
use ctxhost_session::{Record, Session};

/// Handles that an error lists.
const MAX_EXAMPLES: usize = 5;

/// The original of shortened content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredOriginal {
    /// An entry of the session.
    Entry {
        text: String,
        /// Its line in the session file.
        line: String,
    },
    /// A stored blob: a large result or an image.
    Bytes(Vec<u8>),
}

/// Why an original was not found.
#[derive(Debug, thiserror::Error)]
pub enum OriginalError {
    /// No entry or blob has this handle.
    #[error(
        "{session} has no entry or file with the id {handle:?}; notices name ids as `entry …` or `file …`"
    )]
    Unknown { session: String, handle: String },
    /// The prefix is ambiguous.
    #[error("{handle:?} is a prefix of {count} ids, such as {}; give a longer one", examples.join(", "))]
    Ambiguous {
        handle: String,
        /// The number of matches.
        count: usize,
        /// Some of them.
        examples: Vec<String>,
    },
    /// The blob store failed.
    #[error(transparent)]
    Media(#[from] BlobError),
}

/// Copies the blobs of a session to its fork: those in the session's own folder and those it references. In a shared
/// store this renews their age, which protects them from garbage collection.
///
/// # Errors
///
/// [`BlobError`]; some blobs may have been copied.
pub fn copy_blobs(
    session: &Session,
    from: &SessionBlobs,
    fork: &SessionBlobs,
) -> Result<(), BlobError> {
    let known = from.handles("")?.into_iter().collect();
    let mut handles = blobs::referenced_handles(session.records().iter().map(Record::line), &known);
    handles.extend(from.handles_beside()?);
    for handle in handles {
        if let Some(bytes) = from.get(&handle)? {
            fork.put(&bytes)?;
        }
    }
    Ok(())
}

/// Finds an original by its handle or a prefix. In a store of many sessions, blobs that this session references have
/// priority.
pub fn find_original(
    path: &Path,
    session: &Session,
    stored: &SessionBlobs,
    handle: &str,
) -> Result<StoredOriginal, OriginalError> {
    let entries = session.records().iter().filter(|record| record.to_entry().is_some());
    let mut entries: Vec<&Record> = entries.filter(|r| r.id().starts_with(handle)).collect();
    let mut blobs = stored.handles(handle)?;
    if blobs.len() > 1 || !entries.is_empty() {
        let known = blobs.iter().cloned().collect();
        let named = blobs::referenced_handles(session.records().iter().map(Record::line), &known);
        if !(named.is_empty() && entries.is_empty()) {
            blobs.retain(|blob| named.contains(blob));
        }
    }
    // A whole id is also a prefix of longer ones.
    if let Some(exact) = entries.iter().copied().find(|record| record.id() == handle) {
        (entries, blobs) = (vec![exact], Vec::new());
    }
    let unknown = || OriginalError::Unknown {
        session: path.display().to_string(),
        handle: handle.to_owned(),
    };
    match (entries.as_slice(), blobs.as_slice()) {
        // The empty text is a prefix of everything.
        _ if handle.is_empty() => Err(unknown()),
        ([record], []) => Ok(entry(record)),
        ([], [blob]) => Ok(StoredOriginal::Bytes(stored.get(blob)?.ok_or_else(unknown)?)),
        ([], []) => Err(unknown()),
        _ => {
            let ids = entries.iter().map(|record| record.id().to_owned());
            let examples = ids.chain(blobs.iter().cloned()).take(MAX_EXAMPLES).collect();
            let count = entries.len() + blobs.len();
            Err(OriginalError::Ambiguous { handle: handle.to_owned(), count, examples })
        }
    }
}

fn entry(record: &Record) -> StoredOriginal {
    let text = record.to_entry().map(|entry| entry.text).unwrap_or_default();
    StoredOriginal::Entry { text, line: record.line().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_blobs::{BlobDirs, BlobFolder};

    const SESSION: &str = concat!(
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#,
        "\n",
        r#"{"type":"message","id":"ab12cd34","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"one"}}"#,
        "\n",
        r#"{"type":"message","id":"ab99cd34","parentId":"ab12cd34","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"two"}}"#,
        "\n",
    );

    fn text_of(found: Result<StoredOriginal, OriginalError>) -> String {
        match found.unwrap() {
            StoredOriginal::Entry { text, .. } => text,
            StoredOriginal::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
        }
    }

    fn found(path: &Path, handle: &str) -> Result<StoredOriginal, OriginalError> {
        let session = Session::parse("s", SESSION.as_bytes()).unwrap();
        find_original(path, &session, &BlobDirs::default().session_blobs(path), handle)
    }

    #[test]
    fn an_original_is_found_by_a_prefix_of_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        assert_eq!(text_of(found(&path, "ab12cd34")), "one");
        assert_eq!(text_of(found(&path, "ab9")), "two");
        let handle = BlobFolder::beside_session(&path).put(b"output").unwrap();
        assert_eq!(text_of(found(&path, &handle)), "output");
        assert_eq!(text_of(found(&path, &handle[..8])), "output");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "s.jsonl.blobs alone");
    }

    #[test]
    fn unknown_and_ambiguous_handles_have_their_own_errors() {
        let error = |handle| found(Path::new("s.jsonl"), handle).unwrap_err().to_string();
        assert_eq!(
            error("ab"),
            "\"ab\" is a prefix of 2 ids, such as ab12cd34, ab99cd34; give a longer one"
        );
        for unknown in ["ffff", "", "../s"] {
            assert!(
                error(unknown).starts_with("s.jsonl has no entry or file with the id"),
                "{unknown}"
            );
        }
    }
}
