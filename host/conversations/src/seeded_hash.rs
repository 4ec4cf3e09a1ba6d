//! Hashes of items: one of the bytes, and one of the canonical form.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

use super::returned_summary::ReturnedSummary;
use super::traits::{
    ItemAuthor, ItemTraits, call_ids, has_no_calls, has_random_id, identifying_chars,
};
use crate::secret::SecretFile;
use ctxhost_dialects::inbound::parse_item;
use ctxhost_session::SessionError;

/// A 128-bit hash, seeded with a secret of this machine so that a client cannot construct a history with the hash
/// of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeededHash(u128);

impl SeededHash {
    /// The hash of a text.
    pub fn new(seed: u64, text: &str) -> SeededHash {
        SeededHash(xxh3_128_with_seed(text.as_bytes(), seed))
    }

    #[cfg(test)]
    /// The hash of an item's canonical form, which ignores cache markers, field order, and text as string
    /// versus block.
    pub(crate) fn of_canonical(seed: u64, item: &str) -> SeededHash {
        CanonicalItem::from_json(seed, item).hash
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

/// The canonical form of an item, by which conversations are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanonicalItem {
    /// The hash of the canonical form.
    pub hash: SeededHash,
    /// What edits do not change; `None` if the item could not be parsed.
    pub traits: Option<ItemTraits>,
}

impl CanonicalItem {
    /// The canonical form of an item that is `bytes` long.
    pub(crate) fn from_value(seed: u64, item: &Value, bytes: usize) -> CanonicalItem {
        let mut hash = HashWriter(Xxh3::with_seed(seed));
        // Neither a JSON value nor this writer can fail.
        _ = serde_json::to_writer(&mut hash, &CanonicalJson { value: item, is_opaque: false });
        let hash = SeededHash(hash.0.digest128());
        CanonicalItem { hash, traits: Some(ItemTraits::from_item(seed, item, bytes)) }
    }

    fn from_json(seed: u64, item: &str) -> CanonicalItem {
        match parse_item(item) {
            Ok(value) => CanonicalItem::from_value(seed, &value, item.len()),
            Err(_) => CanonicalItem { hash: SeededHash::new(seed, item), traits: None },
        }
    }
}

/// Hashes the first items of a conversation, item by item.
#[derive(Default)]
pub(super) struct PrefixHasher {
    alike: Xxh3,
    exact: Xxh3,
}

/// Hashes of the first items of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefixHashes {
    /// Does not change if a client clears results, drops thinking or removes reminders.
    pub(super) stable: SeededHash,
    /// Changes with any text.
    pub(super) exact: SeededHash,
}

impl PrefixHasher {
    /// Adds an item.
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

    /// The hashes of all items so far.
    pub(super) fn hashes(&self) -> PrefixHashes {
        let (alike, exact) = (self.alike.digest128(), self.exact.digest128());
        PrefixHashes { stable: SeededHash(alike), exact: SeededHash(exact) }
    }
}

/// Fields with data of programs and tools, which is hashed as it is.
const OPAQUE_FIELDS: [&str; 5] = ["input", "arguments", "args", "response", "action"];

/// A value that is written without cache markers, with sorted fields, and with each content as blocks.
struct CanonicalJson<'a> {
    value: &'a Value,
    /// Whether it is data of programs and tools.
    is_opaque: bool,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    text: &'a str,
    r#type: &'static str,
}

impl Serialize for CanonicalJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &CanonicalJson { value, is_opaque } = self;
        match value {
            Value::Array(list) => {
                serializer.collect_seq(list.iter().map(|value| CanonicalJson { value, is_opaque }))
            }
            Value::Object(fields) => {
                // Clients move cache markers to newer messages with each request.
                let is_kept = |name: &str| is_opaque || name != "cache_control";
                let mut fields: Vec<_> = fields.iter().filter(|(name, _)| is_kept(name)).collect();
                // Some clients serialize maps in random order.
                fields.sort_unstable_by_key(|(name, _)| *name);
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    match value {
                        Value::String(text) if !is_opaque && name == "content" => {
                            let block = TextBlock { text, r#type: "text" };
                            object.serialize_entry(name, &[block])?;
                        }
                        value => {
                            let is_opaque = is_opaque || OPAQUE_FIELDS.contains(&name.as_str());
                            object.serialize_entry(name, &CanonicalJson { value, is_opaque })?;
                        }
                    }
                }
                object.end()
            }
            value => value.serialize(serializer),
        }
    }
}

/// Hashes what is written to it.
struct HashWriter(Xxh3);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The items of a request, with hashes computed on demand.
#[derive(Debug)]
pub struct RequestItems<'a> {
    items: &'a [&'a str],
    names: ItemHashes,
    scope: ConversationScope,
    returned_summary: Option<ReturnedSummary>,
}

/// The scope in which a conversation is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationScope {
    /// The hash of the session id; `None` without one.
    pub name: Option<SeededHash>,
    /// Whether the id is a name from our header.
    pub is_named: bool,
}

/// The hashes computed so far.
#[derive(Debug, Default)]
pub(crate) struct ItemHashes {
    seed: u64,
    raw: Vec<SeededHash>,
    canonical: Vec<Option<CanonicalItem>>,
}

impl<'a> RequestItems<'a> {
    /// The items of a request.
    pub fn new(seed: u64, items: &'a [&'a str]) -> RequestItems<'a> {
        let raw = items.iter().map(|item| SeededHash::new(seed, item)).collect();
        let names = ItemHashes { seed, raw, canonical: vec![None; items.len()] };
        RequestItems { items, names, scope: ConversationScope::default(), returned_summary: None }
    }

    /// The scope.
    pub fn scope(&self) -> ConversationScope {
        self.scope
    }

    /// Sets the scope.
    pub fn set_scope(&mut self, scope: ConversationScope) {
        self.scope = scope;
    }

    /// The summary of this gateway that its first item is.
    pub fn returned_summary(&self) -> Option<&ReturnedSummary> {
        self.returned_summary.as_ref()
    }

    /// Sets the summary that its first item is.
    pub fn set_returned_summary(&mut self, summary: Option<ReturnedSummary>) {
        self.returned_summary = summary;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The items.
    pub fn items(&self) -> &'a [&'a str] {
        self.items
    }

    /// The size of the items after the first `known` ones.
    pub fn bytes_after(&self, known: usize) -> u64 {
        self.items.iter().skip(known).map(|item| item.len() as u64).sum()
    }

    /// The hash of an item's bytes.
    pub fn raw_hash(&self, at: usize) -> Option<SeededHash> {
        self.names.raw.get(at).copied()
    }

    /// The hash of an item's canonical form.
    pub fn canonical_hash(&mut self, at: usize) -> Option<SeededHash> {
        Some(self.canonical(at)?.hash)
    }

    /// Whether an item is this answer with more calls or texts at its end.
    pub(super) fn continues_answer(&self, at: usize, answer: ItemTraits) -> bool {
        let item = self.items.get(at).and_then(|item| parse_item(item).ok());
        item.is_some_and(|item| answer.is_start_of(self.names.seed, &item))
    }

    /// Whether an item has a call id that is long enough to be random.
    pub fn has_random_id(&self, at: usize) -> bool {
        let item = self.items.get(at).and_then(|item| parse_item(item).ok());
        item.is_some_and(|item| has_random_id(&item))
    }

    /// The ids of an item's calls and results.
    pub(super) fn call_ids(&self, at: usize) -> Vec<String> {
        let item = self.items.get(at).and_then(|item| parse_item(item).ok());
        item.map_or_else(Vec::new, |item| call_ids(&item))
    }

    /// The byte hashes of all items.
    pub(super) fn raw_hashes(&self) -> HashSet<SeededHash> {
        self.names.raw.iter().copied().collect()
    }

    /// Whether an item is an answer without calls.
    pub(super) fn is_answer_without_calls(&self, at: usize) -> bool {
        let item = self.items.get(at).and_then(|item| parse_item(item).ok());
        item.is_some_and(|item| has_no_calls(&item))
    }

    /// Whether an item with these traits has neither text nor calls.
    pub(super) fn is_thinking(&self, traits: ItemTraits) -> bool {
        traits.is_thinking(self.names.seed)
    }

    /// The characters of an answer that other answers do not have: its texts, and ids of its calls.
    pub(super) fn answer_chars(&self, at: usize) -> usize {
        let item = self.items.get(at).and_then(|item| parse_item(item).ok());
        item.map_or(0, |item| identifying_chars(&item))
    }

    /// The hashes of the prefixes of these lengths, the shortest first.
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

    /// The position of the first answer of a model.
    pub(super) fn first_answer(&mut self) -> Option<usize> {
        let is_answer = |traits: ItemTraits| traits.author == ItemAuthor::Model;
        (0..self.items.len())
            .find(|at| self.canonical(*at).and_then(|item| item.traits).is_some_and(is_answer))
    }

    /// Parses an item, which also gives its canonical form.
    ///
    /// # Errors
    ///
    /// Those of [`parse_item`].
    pub fn parse(&mut self, at: usize) -> serde_json::Result<Value> {
        let item = self.items.get(at).copied().unwrap_or_default();
        let value = parse_item(item)?;
        if let Some(known) = self.names.canonical.get_mut(at) {
            let seed = self.names.seed;
            known.get_or_insert_with(|| CanonicalItem::from_value(seed, &value, item.len()));
        }
        Ok(value)
    }

    /// An item's canonical form.
    pub(crate) fn canonical(&mut self, at: usize) -> Option<CanonicalItem> {
        let (item, known) = (self.items.get(at)?, self.names.canonical.get_mut(at)?);
        Some(*known.get_or_insert_with(|| CanonicalItem::from_json(self.names.seed, item)))
    }
}

/// The seed file.
const SECRET: SecretFile = SecretFile { name: "secret", action: "store the gateway secret in" };

/// Reads the hash seed in a folder, or creates it.
///
/// # Errors
///
/// If the folder or file cannot be created or read, or the file is damaged.
pub fn read_seed(folder: &Path) -> Result<u64, SessionError> {
    SECRET.read_or_create(folder).map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cache_markers_are_ignored_and_text_is_not() {
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
    fn tool_arguments_are_hashed_as_they_are() {
        let with = |input: &str| {
            let call = format!(r#"{{"type":"tool_use","id":"1","name":"put","input":{input}}}"#);
            SeededHash::of_canonical(7, &format!(r#"{{"role":"assistant","content":[{call}]}}"#))
        };
        assert_ne!(with(r#"{"content":"a"}"#), with(r#"{"content":[{"type":"text","text":"a"}]}"#));
        assert_ne!(with(r#"{"cache_control":1}"#), with("{}"));
    }

    #[test]
    fn hashes_of_older_sessions_stay_valid() {
        // The first form of the hash, which sessions have stored: a value that is changed and then written.
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
        let marker = json!({ "type": "ephemeral" });
        let opaque = json!({ "z": 1, "cache_control": marker, "content": "c", "a": [{ "y": 0.1, "x": 1e300 }] });
        for item in [
            json!({ "role": "user", "content": "\u{1F600} \"quoted\" \n" }),
            json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "input": opaque }] }),
            json!({ "role": "user", "content": [{ "type": "tool_result", "content": "r", "cache_control": marker }] }),
            json!({ "type": "function_call", "arguments": "{}", "action": opaque, "status": null }),
            json!({ "role": "model", "parts": [{ "functionCall": { "name": "n", "args": opaque } }] }),
            json!([{ "content": { "content": "inner" } }, 7, true, -1, 18446744073709551615u64, "text".repeat(500)]),
            json!({ "role": "user", "content": "long ".repeat(5_000) }),
        ] {
            let mut value = item.clone();
            canonicalize(&mut value);
            value.sort_all_objects();
            let hash = SeededHash::of_canonical(7, &item.to_string());
            assert_eq!(hash, SeededHash::new(7, &value.to_string()), "{item}");
        }
    }

    #[test]
    fn hex_round_trips() {
        let digest = SeededHash::new(7, "x");
        assert_eq!(SeededHash::from_hex(&digest.to_hex()), Some(digest));
        for wrong in ["", "0", &"g".repeat(32), &"0".repeat(33), &format!("+{}", "0".repeat(31))] {
            assert_eq!(SeededHash::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_seed_is_shared_and_old_files_stay_valid() {
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
