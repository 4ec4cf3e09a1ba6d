//! Where the conversations of a key are that are not in memory: one line for each beside their files.
//!
//! A line only says where to look. What a conversation is stands in its session alone, and whoever finds one by its
//! line holds the request against that. Files without a line are found by listing the folder.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::known_items::KnownItems;
use super::seeded_hash::{PrefixHashes, RequestItems, SeededHash};

/// The name of the file in the folder of a key.
const FILE: &str = "register";

/// The most of it that is read, in bytes, and above which its older half is left out: some forty thousand lines.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Beginnings that are remembered of one conversation: a client may go back by so many departures.
const MAX_PREFIXES: usize = 8;

/// Where a conversation is, and how its requests begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// How many items `prefix` is a name of.
    pub(super) items: usize,
    /// Names of these items.
    pub(super) prefix: PrefixHashes,
    /// The key in whose folder the file is.
    pub(super) home_key: SeededHash,
    /// The id of its session.
    pub(super) id: String,
}

impl IndexEntry {
    fn to_line(&self) -> String {
        let IndexEntry { items, prefix: PrefixHashes { stable: alike, exact }, home_key: home, id } =
            self;
        format!("{items} {} {} {} {id}\n", alike.to_hex(), exact.to_hex(), home.to_hex())
    }

    /// `None` for a line that is none, such as one that was cut short.
    fn parse_line(line: &str) -> Option<IndexEntry> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        let items = words.next()?.parse().ok()?;
        let mut name = || SeededHash::from_hex(words.next()?);
        let prefix = PrefixHashes { stable: name()?, exact: name()? };
        let (home, id) = (name()?, words.next()?);
        // It becomes the name of a file.
        let is_id = |id: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !id.is_empty() && id.bytes().all(is_allowed)
        };
        (is_id(id) && words.next().is_none()).then(|| IndexEntry {
            items,
            prefix,
            home_key: home,
            id: id.to_owned(),
        })
    }
}

/// The conversations of one key that are in files.
#[derive(Debug, Default)]
pub(super) struct ConversationIndex {
    /// By what stays the same of their beginnings, the newest last.
    by_prefix: HashMap<SeededHash, Vec<IndexedConversation>>,
    /// How long the beginnings are.
    lengths: BTreeSet<usize>,
    /// The newest entries of each, by the ids of their sessions, the newest last.
    newest: HashMap<String, VecDeque<(usize, PrefixHashes, SeededHash)>>,
}

#[derive(Debug)]
struct IndexedConversation {
    exact: SeededHash,
    home: SeededHash,
    id: String,
}

impl ConversationIndex {
    /// The register in the folder of a key. One that cannot be read has no lines.
    pub(super) fn read(folder: &Path) -> ConversationIndex {
        let mut register = ConversationIndex::default();
        match read_newest(&path(folder)) {
            Ok(text) => {
                let entries = text.split_inclusive('\n').filter_map(IndexEntry::parse_line);
                entries.for_each(|entry| register.add(entry));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "the register of conversations cannot be read");
            }
        }
        register
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, entry: IndexEntry) {
        let IndexEntry { items, prefix, home_key: home, id } = entry;
        self.lengths.insert(items);
        let newest = self.newest.entry(id.clone()).or_default();
        newest.push_back((items, prefix, home));
        let oldest = (newest.len() > MAX_PREFIXES).then(|| newest.pop_front()).flatten();
        if let Some((_, oldest, _)) = oldest {
            self.forget(&oldest, &id);
        }
        let same = self.by_prefix.entry(prefix.stable).or_default();
        same.push(IndexedConversation { exact: prefix.exact, home, id });
    }

    fn forget(&mut self, prefix: &PrefixHashes, id: &str) {
        let Some(same) = self.by_prefix.get_mut(&prefix.stable) else { return };
        let oldest = same.iter().position(|it| it.id == id && it.exact == prefix.exact);
        if let Some(oldest) = oldest {
            same.remove(oldest);
        }
        if same.is_empty() {
            self.by_prefix.remove(&prefix.stable);
        }
    }

    /// Whether a session has an entry.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.newest.contains_key(id)
    }

    /// The newest entry of a session.
    pub(super) fn entry(&self, id: &str) -> Option<IndexEntry> {
        let (items, prefix, home) = *self.newest.get(id)?.back()?;
        Some(IndexEntry { items, prefix, home_key: home, id: id.to_owned() })
    }

    /// Where the conversations are that a request may be of, those that have most in common with it first.
    pub(super) fn candidates(&self, request: &mut RequestItems<'_>) -> Vec<(SeededHash, String)> {
        let mut found = Vec::new();
        for prefix in request.prefix_hashes(&self.lengths).into_iter().rev() {
            let same = self.by_prefix.get(&prefix.stable).into_iter().flatten().rev();
            let (exact, others): (Vec<_>, Vec<_>) =
                same.partition(|found| found.exact == prefix.exact);
            found.extend(exact.into_iter().chain(others));
        }
        let mut seen = HashSet::new();
        let new = found.into_iter().filter(|found| seen.insert(&*found.id));
        new.map(|found| (found.home, found.id.clone())).collect()
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<(SeededHash, String)> {
        let newest = self.newest.iter().filter_map(|(id, them)| Some((id, them.back()?)));
        newest.map(|(id, (_, _, home))| (*home, id.clone())).collect()
    }
}

/// Writes an entry down in the folder of a key.
///
/// # Errors
///
/// Whatever the disk answers.
pub(super) fn append_entry(folder: &Path, entry: &IndexEntry) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let path = path(folder);
    let mut file = options.open(&path)?;
    // One write: several processes may have one folder.
    file.write_all(entry.to_line().as_bytes())?;
    if file.metadata()?.len() > MAX_BYTES { drop_older_half(&path) } else { Ok(()) }
}

/// A line that another process adds in between is lost; its conversation is found by its file.
fn drop_older_half(path: &Path) -> io::Result<()> {
    let text = read_newest(path)?;
    let half = text.len() / 2;
    let newer = text.char_indices().find(|(at, it)| *at >= half && *it == '\n');
    let newer = newer.and_then(|(at, _)| text.get(at + 1..)).unwrap_or_default();
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(newer.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// How a conversation begins: all up to the last answer of the model, or all where there is none.
pub(super) fn entry_of(known_items: &KnownItems, home: SeededHash, id: &str) -> IndexEntry {
    let (items, prefix) = known_items.prefix();
    IndexEntry { items, prefix, home_key: home, id: id.to_owned() }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn read_newest(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    // Lines that were cut off are none.
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_there_and_back_and_nothing_else() {
        let name = |text: &str| SeededHash::new(1, text);
        let prefix = PrefixHashes { stable: name("b"), exact: name("e") };
        let home = name("h");
        let entry = IndexEntry { items: 3, prefix, home_key: home, id: "01a1-b".into() };
        let line = entry.to_line();
        assert_eq!(IndexEntry::parse_line(&line), Some(entry.clone()));
        for wrong in ["", "\n", line.trim_end(), &line.replace("01a1-b", "../x"), "3 x y z\n"] {
            assert_eq!(IndexEntry::parse_line(wrong), None, "{wrong:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        append_entry(folder.path(), &entry).unwrap();
        std::fs::write(path(folder.path()), format!("{line}torn 1{line}{}", &line[..20])).unwrap();
        let register = ConversationIndex::read(folder.path());
        assert_eq!(register.all(), [(home, "01a1-b".to_owned())]);
        assert!(register.contains("01a1-b") && !register.contains("x"));
    }

    #[test]
    fn neither_the_file_nor_the_memory_grows_for_ever() {
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
        let register = ConversationIndex::read(folder.path());
        assert_eq!(register.entry("01a1-b"), Some(entry(29)));
        assert_eq!(register.by_prefix.len(), MAX_PREFIXES);
    }
}
