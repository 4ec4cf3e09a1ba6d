//! Stores the originals of replaced texts, and finds them by a part of their hash.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ctxhost_blobs::{self as blobs, BlobDirs, BlobError, BlobFolder};

/// The hash digits in a reference. LiteLLM and headroom expect this many.
const HASH_CHARS: usize = 24;

/// The size of the cache of stored originals; a full cache is cleared.
const MAX_KNOWN: usize = 65_536;

/// The store of originals.
#[derive(Debug, Default)]
pub(super) struct OriginalStore {
    folder: Option<BlobFolder>,
    /// Session and handle of originals that this process has stored.
    known: Mutex<HashSet<(String, String)>>,
}

impl OriginalStore {
    /// Opens the blob store of a state folder.
    pub(super) fn open(state: &Path) -> OriginalStore {
        OriginalStore {
            folder: BlobDirs::from_state_dir(state).shared_folder(),
            known: Mutex::default(),
        }
    }

    /// Stores texts for a session. Returns the handles that are new to the session, which must record them.
    /// Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`BlobError`]; some texts may be stored.
    pub(super) fn store(&self, session: &str, texts: &[String]) -> Result<Vec<String>, BlobError> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let mut new = Vec::new();
        for text in texts {
            let name = (session.to_owned(), blobs::hash(text.as_bytes()));
            // Every request of a compacted conversation references the same originals again.
            if self.known().contains(&name) {
                continue;
            }
            new.push(folder.put(text.as_bytes())?);
            let mut known = self.known();
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(name);
        }
        Ok(new)
    }

    /// Loads an original by its short hash; `None` if there is none. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`BlobError`].
    pub(super) fn load(&self, hash: &str) -> Result<Option<String>, BlobError> {
        let Some(folder) = self.folder.as_ref().filter(|_| is_hash(hash)) else { return Ok(None) };
        let Some(handle) = folder.handles(hash)?.into_iter().next() else { return Ok(None) };
        let bytes = folder.get(&handle)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash that references contain.
pub(super) fn short_hash(text: &str) -> String {
    blobs::hash(text.as_bytes()).chars().take(HASH_CHARS).collect()
}

/// Whether a text is such a hash.
pub(super) fn is_hash(hash: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    hash.len() == HASH_CHARS && hash.bytes().all(is_digit)
}

/// Longer paragraphs are split into lines, in bytes.
const PARAGRAPH_MAX_BYTES: usize = 800;

/// The most query words. Each is a search through the text.
const QUERY_MAX_WORDS: usize = 64;

/// The parts of a text that match a query best: the whole query, else all its words, else any. The whole text if
/// nothing matches.
pub(super) fn narrow_to_query(text: &str, query: &str) -> String {
    let query = query.trim().to_lowercase();
    let words: Vec<&str> = query.split_whitespace().take(QUERY_MAX_WORDS).collect();
    if words.is_empty() {
        return text.to_owned();
    }
    let ranked =
        pieces(text).into_iter().map(|piece| (rank(&piece.to_lowercase(), &query, &words), piece));
    let ranked: Vec<(u8, &str)> = ranked.collect();
    let best = ranked.iter().map(|(rank, _)| *rank).max().unwrap_or_default();
    if best == 0 {
        return text.to_owned();
    }
    let found = ranked.iter().filter(|(rank, _)| *rank == best).map(|(_, piece)| *piece);
    found.collect::<Vec<_>>().join("\n")
}

fn rank(piece: &str, query: &str, words: &[&str]) -> u8 {
    if piece.contains(query) {
        3
    } else if words.iter().all(|word| piece.contains(word)) {
        2
    } else {
        u8::from(words.iter().any(|word| piece.contains(word)))
    }
}

fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        if paragraph.len() <= PARAGRAPH_MAX_BYTES {
            pieces.push(paragraph.trim_matches('\n'))
        } else {
            pieces.extend(paragraph.lines().filter(|line| !line.trim().is_empty()))
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_by_its_short_hash() {
        let state = tempfile::tempdir().unwrap();
        let text = "the whole of it".to_owned();
        let hash = short_hash(&text);
        let originals = OriginalStore::open(state.path());
        assert_eq!(originals.load(&hash).unwrap(), None);
        let new = originals.store("s", std::slice::from_ref(&text)).unwrap();
        assert!(new.len() == 1 && new[0].starts_with(&hash) && is_hash(&hash), "{new:?}");
        assert!(originals.store("s", std::slice::from_ref(&text)).unwrap().is_empty());
        assert_eq!(originals.store("other", std::slice::from_ref(&text)).unwrap(), new);
        let reopened = OriginalStore::open(state.path());
        assert_eq!(reopened.load(&hash).unwrap(), Some(text));
        for none in ["", "0", &hash[1..], &hash.to_uppercase(), &"0".repeat(24)] {
            assert_eq!(reopened.load(none).unwrap(), None, "{none}");
        }
    }

    #[test]
    fn a_query_narrows_to_the_best_match() {
        let long = format!("first line\nerror: Disk full\n{}\nlast error", "x\n".repeat(600));
        let text = format!("about disks\nand errors\n\n{long}\n\nnothing");
        let check =
            |query, expected: &str| assert_eq!(narrow_to_query(&text, query), expected, "{query}");
        check("disk full", "error: Disk full");
        check("full ERROR", "error: Disk full");
        check("errors disks", "about disks\nand errors");
        check("last first", "first line\nlast error");
        check("giraffe", &text);
        check("  ", &text);
    }
}
