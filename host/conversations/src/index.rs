//! The index of one key's conversations in files: one line per conversation, in a file beside theirs.
//!
//! An index line is a hint. Every match is verified against the session file, and files without a line are found by
//! listing the folder.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use ctxhost_platform::files::{LinkPolicy, open_options};

use super::seeded_hash::{PrefixHashes, RequestItems, SeededHash};

/// The file name in the folder of a key.
const FILE: &str = "register";

/// The size above which the older half is dropped, some forty thousand lines.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Prefixes remembered per conversation: a client may return to so many earlier branches.
const MAX_PREFIXES: usize = 8;

/// Conversations that are candidates by a beginning without an answer, the newest. Any number may begin with the same words, and
/// each costs reading a file.
const MAX_UNANSWERED: usize = 4;

/// Where a conversation is, and the hashes of its first items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// The number of items in `prefix`.
    pub(super) items: usize,
    /// The hashes of these items.
    pub(super) prefix: PrefixHashes,
    /// The key whose folder has the file.
    pub(super) home_key: SeededHash,
    /// The session id.
    pub(super) id: String,
}

impl IndexEntry {
    fn to_line(&self) -> String {
        let IndexEntry { items, prefix: PrefixHashes { stable, exact }, home_key, id } = self;
        format!("{items} {} {} {} {id}\n", stable.to_hex(), exact.to_hex(), home_key.to_hex())
    }

    /// `None` for an invalid line, such as a truncated one.
    fn parse_line(line: &str) -> Option<IndexEntry> {
        let mut fields = line.strip_suffix('\n')?.split(' ');
        let items = fields.next()?.parse().ok()?;
        let mut hash = || SeededHash::from_hex(fields.next()?);
        let prefix = PrefixHashes { stable: hash()?, exact: hash()? };
        let (home_key, id) = (hash()?, fields.next()?);
        // The id becomes part of a file name.
        let is_id = |id: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !id.is_empty() && id.bytes().all(is_allowed)
        };
        (is_id(id) && fields.next().is_none()).then(|| IndexEntry {
            items,
            prefix,
            home_key,
            id: id.to_owned(),
        })
    }
}

/// The conversations of one key that are in files.
#[derive(Debug, Default)]
pub(super) struct ConversationIndex {
    /// By stable prefix hash, the newest last.
    by_prefix: HashMap<SeededHash, Vec<IndexedConversation>>,
    /// The lengths of all prefixes.
    lengths: BTreeSet<usize>,
    /// The newest entries per session id, the newest last.
    newest: HashMap<String, VecDeque<(usize, PrefixHashes, SeededHash)>>,
}

#[derive(Debug)]
struct IndexedConversation {
    exact: SeededHash,
    home_key: SeededHash,
    id: String,
}

impl ConversationIndex {
    /// Reads the index in the folder of a key; empty if it cannot be read.
    pub(super) fn read(folder: &Path) -> ConversationIndex {
        let mut index = ConversationIndex::default();
        match read_newest(&path(folder)) {
            Ok(text) => {
                let entries = text.split_inclusive('\n').filter_map(IndexEntry::parse_line);
                entries.for_each(|entry| index.add(entry));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "cannot read the conversation index: session files are found by listing the folder");
            }
        }
        index
    }

    pub(super) fn add(&mut self, entry: IndexEntry) {
        let IndexEntry { items, prefix, home_key, id } = entry;
        self.lengths.insert(items);
        let newest = self.newest.entry(id.clone()).or_default();
        newest.push_back((items, prefix, home_key));
        let oldest = (newest.len() > MAX_PREFIXES).then(|| newest.pop_front()).flatten();
        if let Some((_, oldest, _)) = oldest {
            self.forget(&oldest, &id);
        }
        let entries = self.by_prefix.entry(prefix.stable).or_default();
        entries.push(IndexedConversation { exact: prefix.exact, home_key, id });
    }

    fn forget(&mut self, prefix: &PrefixHashes, id: &str) {
        let Some(entries) = self.by_prefix.get_mut(&prefix.stable) else { return };
        let oldest = entries.iter().position(|entry| entry.id == id && entry.exact == prefix.exact);
        if let Some(oldest) = oldest {
            entries.remove(oldest);
        }
        if entries.is_empty() {
            self.by_prefix.remove(&prefix.stable);
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.newest.contains_key(id)
    }

    /// The newest entry of a session.
    pub(super) fn entry(&self, id: &str) -> Option<IndexEntry> {
        let (items, prefix, home_key) = *self.newest.get(id)?.back()?;
        Some(IndexEntry { items, prefix, home_key, id: id.to_owned() })
    }

    /// The conversations that may match a request, the longest common prefix first.
    pub(super) fn candidates(&self, request: &mut RequestItems<'_>) -> Vec<(SeededHash, String)> {
        let mut found = Vec::new();
        let prefixes = self.lengths.iter().zip(request.prefix_hashes(&self.lengths));
        let prefixes: Vec<(&usize, PrefixHashes)> = prefixes.collect();
        let answer = request.first_answer();
        for (length, prefix) in prefixes.into_iter().rev() {
            let is_answered = answer.is_some_and(|at| at < *length);
            let most = if is_answered { usize::MAX } else { MAX_UNANSWERED };
            let entries = self.by_prefix.get(&prefix.stable).into_iter().flatten().rev();
            let (exact, others): (Vec<_>, Vec<_>) =
                entries.partition(|found| found.exact == prefix.exact);
            found.extend(exact.into_iter().chain(others).take(most));
        }
        let mut seen = HashSet::new();
        let new = found.into_iter().filter(|found| seen.insert(&*found.id));
        new.map(|found| (found.home_key, found.id.clone())).collect()
    }

    /// All conversations, unordered.
    pub(super) fn all(&self) -> Vec<(SeededHash, String)> {
        let newest = self.newest.iter().filter_map(|(id, them)| Some((id, them.back()?)));
        newest.map(|(id, (_, _, home_key))| (*home_key, id.clone())).collect()
    }
}

/// Appends an entry to the index of a folder.
///
/// # Errors
///
/// Any I/O error.
pub(super) fn append_entry(folder: &Path, entry: &IndexEntry) -> io::Result<()> {
    let path = path(folder);
    let mut file = open_options(LinkPolicy::Follow).append(true).create(true).open(&path)?;
    // A single write, because several processes may share a folder.
    file.write_all(entry.to_line().as_bytes())?;
    if file.metadata()?.len() > MAX_BYTES { drop_older_half(&path) } else { Ok(()) }
}

/// A line that another process appends meanwhile is lost. Its conversation is found by listing the folder.
fn drop_older_half(path: &Path) -> io::Result<()> {
    let text = read_newest(path)?;
    let half = text.len() / 2;
    let newer = text.char_indices().find(|(at, character)| *at >= half && *character == '\n');
    let newer = newer.and_then(|(at, _)| text.get(at + 1..)).unwrap_or_default();
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(newer.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn read_newest(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    // A truncated first line is invalid and skipped.
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_round_trips_and_invalid_ones_are_skipped() {
        let name = |text: &str| SeededHash::new(1, text);
        let prefix = PrefixHashes { stable: name("b"), exact: name("e") };
        let home_key = name("h");
        let entry = IndexEntry { items: 3, prefix, home_key, id: "01a1-b".into() };
        let line = entry.to_line();
        assert_eq!(IndexEntry::parse_line(&line), Some(entry.clone()));
        for wrong in ["", "\n", line.trim_end(), &line.replace("01a1-b", "../x"), "3 x y z\n"] {
            assert_eq!(IndexEntry::parse_line(wrong), None, "{wrong:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        append_entry(folder.path(), &entry).unwrap();
        std::fs::write(path(folder.path()), format!("{line}torn 1{line}{}", &line[..20])).unwrap();
        let index = ConversationIndex::read(folder.path());
        assert_eq!(index.all(), [(home_key, "01a1-b".to_owned())]);
        assert!(index.contains("01a1-b") && !index.contains("x"));
    }

    #[test]
    fn the_file_and_the_memory_are_bounded() {
        let name = |text: &str| SeededHash::new(1, text);
        let entry = |n: usize| IndexEntry {
            items: n,
            prefix: PrefixHashes { stable: name(&n.to_string()), exact: name("e") },
            home_key: name("h"),
            id: "01a1-b".into(),
        };
        let folder = tempfile::tempdir().unwrap();
        let line = entry(1).to_line();
        let lines = usize::try_from(MAX_BYTES).unwrap() / line.len();
        std::fs::write(path(folder.path()), line.repeat(lines)).unwrap();
        for n in 2..30 {
            append_entry(folder.path(), &entry(n)).unwrap();
        }
        let length = std::fs::metadata(path(folder.path())).unwrap().len();
        assert!((MAX_BYTES / 3..MAX_BYTES * 2 / 3).contains(&length), "{length}");
        let index = ConversationIndex::read(folder.path());
        assert_eq!(index.entry("01a1-b"), Some(entry(29)));
        assert_eq!(index.by_prefix.len(), MAX_PREFIXES);
    }

    #[test]
    fn a_common_beginning_without_an_answer_leads_to_few_files() {
        let items = [
            r#"{"role":"user","content":"Hello"}"#,
            r#"{"role":"assistant","content":"Good morning."}"#,
            r#"{"role":"user","content":"And now?"}"#,
        ];
        let entry = |items: &[&str], n: usize| {
            let lengths = BTreeSet::from([items.len()]);
            let prefix = RequestItems::new(7, items).prefix_hashes(&lengths)[0];
            IndexEntry {
                items: items.len(),
                prefix,
                home_key: SeededHash::new(1, "h"),
                id: n.to_string(),
            }
        };
        let mut index = ConversationIndex::default();
        (0..20).for_each(|n| index.add(entry(&items[..1], n)));
        (20..30).for_each(|n| index.add(entry(&items[..2], n)));
        let ids = |items: &[&str]| -> Vec<String> {
            let found = index.candidates(&mut RequestItems::new(7, items));
            found.into_iter().map(|(_, id)| id).collect()
        };
        assert_eq!(ids(&items[..1]), ["19", "18", "17", "16"]);
        let of_all = ids(&items);
        assert_eq!(of_all.len(), 10 + MAX_UNANSWERED);
        assert_eq!(of_all[0], "29", "the longest common beginning comes first");
    }
}
