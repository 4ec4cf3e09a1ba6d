//! Names of items: one of their bytes, and one of what they say, however it is written.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

use super::traits::ItemTraits;
use crate::secret::SecretFile;
use ctxhost_session::SessionError;

/// 128 bits, seeded with a secret of this machine: who does not know it cannot make up a history that
/// has the name of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeededHash(u128);

impl SeededHash {
    /// Of a text.
    pub fn new(seed: u64, text: &str) -> SeededHash {
        SeededHash(xxh3_128_with_seed(text.as_bytes(), seed))
    }

    /// Of what an item says: marks for a cache do not count, nor the order of fields, nor whether one
    /// text stands alone or in a block.
    pub fn of_canonical(seed: u64, item: &str) -> SeededHash {
        CanonicalItem::parse(seed, item).hash
    }

    /// As 32 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// From 32 hex digits; `None` for anything else.
    pub fn from_hex(hex: &str) -> Option<SeededHash> {
        let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(hex, 16).ok()).flatten().map(SeededHash)
    }
}

/// What an item means, as far as conversations are told apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalItem {
    /// The name of what it says.
    pub hash: SeededHash,
    /// What stays the same of it; `None` where that is not known.
    pub traits: Option<ItemTraits>,
}

impl CanonicalItem {
    /// Of an item.
    pub fn parse(seed: u64, item: &str) -> CanonicalItem {
        let Ok(mut value) = serde_json::from_str::<Value>(item) else {
            return CanonicalItem { hash: SeededHash::new(seed, item), traits: None };
        };
        let traits = ItemTraits::from_item(seed, &value, item.len());
        canonicalize(&mut value);
        value.sort_all_objects();
        CanonicalItem { hash: SeededHash::new(seed, &value.to_string()), traits: Some(traits) }
    }
}

/// How a conversation begins, item by item.
#[derive(Default)]
pub(super) struct PrefixHasher {
    alike: Xxh3,
    exact: Xxh3,
}

/// Names of how a conversation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefixHashes {
    /// It stays the same when its client clears results, drops thinking or takes reminders away.
    pub(super) stable: SeededHash,
    /// It is of all that is said.
    pub(super) exact: SeededHash,
}

impl PrefixHasher {
    /// One more item.
    pub(super) fn add(&mut self, item: CanonicalItem) {
        self.exact.update(&item.hash.0.to_le_bytes());
        match item.traits {
            Some(ItemTraits { author, essence, .. }) => {
                self.alike.update(&[author as u8 + 1]);
                self.alike.update(&essence.to_le_bytes());
            }
            None => {
                self.alike.update(&[0]);
                self.alike.update(&item.hash.0.to_le_bytes());
            }
        }
    }

    /// The names of all so far.
    pub(super) fn hashes(&self) -> PrefixHashes {
        let (alike, exact) = (self.alike.digest128(), self.exact.digest128());
        PrefixHashes { stable: SeededHash(alike), exact: SeededHash(exact) }
    }
}

/// What a program or a tool gave as data: nothing in it is ours to read.
const OPAQUE_FIELDS: [&str; 5] = ["input", "arguments", "args", "response", "action"];

fn canonicalize(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(canonicalize),
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            for (name, field) in fields.iter_mut() {
                if let (true, Value::String(text)) = (name == "content", &mut *field) {
                    *field = json!([{ "type": "text", "text": std::mem::take(text) }]);
                } else if !OPAQUE_FIELDS.contains(&name.as_str()) {
                    canonicalize(field);
                }
            }
        }
        _ => {}
    }
}

/// The items of a request and their names, each worked out when somebody asks.
#[derive(Debug)]
pub struct RequestItems<'a> {
    items: &'a [&'a str],
    names: ItemHashes,
    scope: ConversationScope,
}

/// Among whose conversations that of a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationScope {
    /// A name of what the client says of its session; `None` where it says nothing.
    pub name: Option<SeededHash>,
    /// Whether it has given that name itself, in our own header.
    pub is_named: bool,
}

/// The names of a request's items, as far as they are worked out.
#[derive(Debug, Default)]
pub struct ItemHashes {
    seed: u64,
    raw: Vec<SeededHash>,
    canonical: Vec<Option<CanonicalItem>>,
}

impl<'a> RequestItems<'a> {
    /// Of a request.
    pub fn new(seed: u64, items: &'a [&'a str]) -> RequestItems<'a> {
        let raw = items.iter().map(|item| SeededHash::new(seed, item)).collect();
        let names = ItemHashes { seed, raw, canonical: vec![None; items.len()] };
        RequestItems { items, names, scope: ConversationScope::default() }
    }

    /// Of items that have these names.
    pub fn with_hashes(items: &'a [&'a str], names: ItemHashes) -> RequestItems<'a> {
        RequestItems { items, names, scope: ConversationScope::default() }
    }

    /// Among whose conversations it is.
    pub fn scope(&self) -> ConversationScope {
        self.scope
    }

    /// It is among the conversations of this scope.
    pub fn set_scope(&mut self, scope: ConversationScope) {
        self.scope = scope;
    }

    /// The names. None are left: whoever asks for one from now on gets none.
    pub fn take_hashes(&mut self) -> ItemHashes {
        std::mem::take(&mut self.names)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items.
    pub fn items(&self) -> &'a [&'a str] {
        self.items
    }

    /// The name of the bytes of one.
    pub fn raw_hash(&self, at: usize) -> Option<SeededHash> {
        self.names.raw.get(at).copied()
    }

    /// The name of what one says.
    pub fn canonical_hash(&mut self, at: usize) -> Option<SeededHash> {
        Some(self.canonical(at)?.hash)
    }

    /// The names of how it begins, of those of these lengths in items that it has, the shortest first.
    pub(super) fn prefix_hashes(&mut self, lengths: &BTreeSet<usize>) -> Vec<PrefixHashes> {
        let (mut prefix, mut names, mut added) = (PrefixHasher::default(), Vec::new(), 0);
        for length in lengths.iter().copied().take_while(|length| *length <= self.items.len()) {
            for at in added..length {
                if let Some(item) = self.canonical(at) {
                    prefix.add(item);
                }
            }
            added = length;
            names.push(prefix.hashes());
        }
        names
    }

    /// What one means.
    pub fn canonical(&mut self, at: usize) -> Option<CanonicalItem> {
        let (item, known) = (self.items.get(at)?, self.names.canonical.get_mut(at)?);
        Some(*known.get_or_insert_with(|| CanonicalItem::parse(self.names.seed, item)))
    }
}

/// Where the secret stands.
const SECRET: SecretFile =
    SecretFile { name: "secret", action: "keep the secret of the gateway in" };

/// The secret that names below this folder are seeded with; made where there is none.
///
/// # Errors
///
/// Where the folder or the file cannot be made or read, or the file holds something else.
pub fn read_seed(folder: &Path) -> Result<u64, SessionError> {
    SECRET.read_or_create(folder).map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_cache_do_not_count_and_words_do() {
        let name = |item: &str| SeededHash::of_canonical(7, item);
        let plain = r#"{"role":"user","content":"hello"}"#;
        for same in [
            r#"{"content":"hello","role":"user"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}"#,
        ] {
            assert_eq!(name(same), name(plain), "{same}");
        }
        for other in [
            r#"{"role":"user","content":"hello "}"#,
            r#"{"role":"assistant","content":"hello"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":""}]}"#,
        ] {
            assert_ne!(name(other), name(plain), "{other}");
        }
        assert_ne!(SeededHash::new(8, plain), SeededHash::new(7, plain));
    }

    #[test]
    fn what_a_tool_is_given_is_read_by_the_tool_alone() {
        let with = |input: &str| {
            let call = format!(r#"{{"type":"tool_use","id":"1","name":"put","input":{input}}}"#);
            SeededHash::of_canonical(7, &format!(r#"{{"role":"assistant","content":[{call}]}}"#))
        };
        assert_ne!(with(r#"{"content":"a"}"#), with(r#"{"content":[{"type":"text","text":"a"}]}"#));
        assert_ne!(with(r#"{"cache_control":1}"#), with("{}"));
    }

    #[test]
    fn hex_there_and_back() {
        let digest = SeededHash::new(7, "x");
        assert_eq!(SeededHash::from_hex(&digest.to_hex()), Some(digest));
        for wrong in ["", "0", &"g".repeat(32), &"0".repeat(33), &format!("+{}", "0".repeat(31))] {
            assert_eq!(SeededHash::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_one_for_all_and_as_it_was_written_before() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("sessions");
        let all: Vec<u64> = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| read_seed(&inner).unwrap())).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert!(all.iter().all(|secret| *secret == all[0]), "{all:?}");
        std::fs::write(inner.join("secret"), "00000000000004d2\n").unwrap();
        assert_eq!(read_seed(&inner).unwrap(), 1_234);
    }
}
