//! The traits of an item: its author, and what stays the same if its client clears a result, drops thinking or
//! removes a reminder.

use std::borrow::Cow;

use ctxhost_text::injected_text;
use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::side_calls::asks_for_summary;

/// The characters by which two versions of a user message are recognized.
const OPENING_CHARS: usize = 48;

/// The most ids and names of calls, and the most texts, that one request adds to an answer.
const MAX_NEW_PARTS: usize = 32;

/// The author of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemAuthor {
    /// A user, maybe with text that a client added.
    User,
    /// A client: its context, or its summary request.
    Client,
    /// The model: text, thinking, calls.
    Model,
    /// A tool: results, maybe with user text after them.
    Tool,
}

impl ItemAuthor {
    fn hash_label(self) -> &'static str {
        match self {
            ItemAuthor::User => "Person",
            ItemAuthor::Client => "Client",
            ItemAuthor::Model => "Model",
            ItemAuthor::Tool => "Tool",
        }
    }
}

/// The parts of an item that edits do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ItemTraits {
    /// The author.
    pub author: ItemAuthor,
    /// A hash of its call ids and of its user or model text.
    pub essence: u64,
    /// A hash of the start of the user text; 0 if there is none.
    pub opening: u64,
    /// The length of its JSON, in bytes.
    pub bytes: u64,
}

impl ItemTraits {
    /// The traits of an item that is `bytes` long.
    pub(crate) fn from_item(seed: u64, item: &Value, bytes: usize) -> ItemTraits {
        let mut parts = ItemParts::default();
        let author = author_of(item);
        parts.take_item(item);
        let texts: Vec<Cow<'_, str>> = match author {
            ItemAuthor::Model => parts.texts.iter().copied().map(Cow::Borrowed).collect(),
            _ => {
                let texts = parts.texts.iter().filter(|text| !asks_for_summary(text));
                let texts = texts.map(|text| injected_text::user_text(text));
                texts.filter(|text| !text.is_empty()).collect()
            }
        };
        let author = match author {
            ItemAuthor::User if parts.has_results => ItemAuthor::Tool,
            ItemAuthor::User if texts.is_empty() && !parts.has_others => ItemAuthor::Client,
            author => author,
        };
        let opening = if author == ItemAuthor::Model { String::new() } else { opening_of(&texts) };
        let name = |text: &str| xxh3_64_with_seed(text.as_bytes(), seed);
        ItemTraits {
            author,
            essence: essence_of(seed, author, &parts.ids, &texts),
            opening: if opening.is_empty() { 0 } else { name(&opening) },
            bytes: bytes as u64,
        }
    }

    /// Whether an item is this answer with more calls or texts at its end.
    pub(crate) fn is_start_of(&self, seed: u64, item: &Value) -> bool {
        if self.author != ItemAuthor::Model || author_of(item) != ItemAuthor::Model {
            return false;
        }
        let mut parts = ItemParts::default();
        parts.take_item(item);
        let texts: Vec<Cow<'_, str>> = parts.texts.into_iter().map(Cow::Borrowed).collect();
        let is_same = |ids: usize, count: usize| {
            let (ids, texts) = (parts.ids.get(..ids), texts.get(..count));
            let (Some(ids), Some(texts)) = (ids, texts) else { return false };
            essence_of(seed, self.author, ids, texts) == self.essence
        };
        let fewest = |count: usize| count.saturating_sub(MAX_NEW_PARTS);
        let calls = fewest(parts.ids.len())..=parts.ids.len();
        calls.rev().any(|ids| (fewest(texts.len())..=texts.len()).any(|count| is_same(ids, count)))
    }

    /// Whether it is an item of an answer with neither text nor calls.
    pub(crate) fn is_thinking(&self, seed: u64) -> bool {
        self.author == ItemAuthor::Model && self.essence == essence_of(seed, self.author, &[], &[])
    }

    /// Whether a user message may contain another one: many clients add what they have retrieved to the newest question,
    /// and store the question alone.
    pub(crate) fn may_contain(&self, part: &ItemTraits) -> bool {
        (self.author, part.author) == (ItemAuthor::User, ItemAuthor::User)
            && part.opening != 0
            && part.bytes < self.bytes
    }

    /// Whether it has user text. Instructions of a client are none: some put what they have retrieved into a system
    /// message before the newest user message, and leave it out of the next request.
    pub(crate) fn has_user_text(&self) -> bool {
        self.opening != 0 && self.author != ItemAuthor::Client
    }

    /// As one word, for a record.
    pub(crate) fn to_word(self) -> String {
        let author = match self.author {
            ItemAuthor::User => 'p',
            ItemAuthor::Client => 'c',
            ItemAuthor::Model => 'm',
            ItemAuthor::Tool => 't',
        };
        format!("{author}{:x}.{:x}.{:x}", self.essence, self.opening, self.bytes)
    }

    /// From such a word; `None` for anything else.
    pub(crate) fn from_word(word: &str) -> Option<ItemTraits> {
        let author = match word.as_bytes().first()? {
            b'p' => ItemAuthor::User,
            b'c' => ItemAuthor::Client,
            b'm' => ItemAuthor::Model,
            b't' => ItemAuthor::Tool,
            _ => return None,
        };
        let mut numbers = word.get(1..)?.split('.').map(|hex| u64::from_str_radix(hex, 16).ok());
        let mut next = || numbers.next().flatten();
        Some(ItemTraits { author, essence: next()?, opening: next()?, bytes: next()? })
    }
}

/// The characters of an answer that tell it from others: its texts, and the ids of its calls, if they are
/// long enough to be random.
pub(crate) fn identifying_chars(item: &Value) -> usize {
    let mut parts = ItemParts::default();
    parts.take_item(item);
    let ids = parts.ids.iter().filter(|id| is_random(id));
    parts.texts.iter().chain(ids).map(|text| text.chars().count()).sum()
}

/// The ids of an item's calls and results.
pub(crate) fn call_ids(item: &Value) -> Vec<String> {
    let mut parts = ItemParts::default();
    parts.take_item(item);
    parts.call_ids.into_iter().map(str::to_owned).collect()
}

/// Whether an item has a call id that is long enough to be random.
pub(crate) fn has_random_id(item: &Value) -> bool {
    let mut parts = ItemParts::default();
    parts.take_item(item);
    parts.ids.iter().any(|id| is_random(id))
}

/// Whether an id is random: it has many characters in a row, or those of a UUID. The parts of `functions.read_file:10` are a name
/// and a number, which two runs of one task share.
fn is_random(id: &str) -> bool {
    const RANDOM_RUN_CHARS: usize = 16;
    const UUID_CHARS: usize = 32;
    let has_run = |least: usize, is_in_run: fn(char) -> bool| {
        let mut runs = id.split(|char| !is_in_run(char));
        runs.any(|run| run.len() >= least && run.bytes().filter(u8::is_ascii_digit).count() > 1)
    };
    has_run(RANDOM_RUN_CHARS, |char| char.is_ascii_alphanumeric())
        || has_run(UUID_CHARS, |char| char.is_ascii_hexdigit() || char == '-')
}

/// Whether an item is an answer with text and without calls.
pub(crate) fn has_no_calls(item: &Value) -> bool {
    let mut parts = ItemParts::default();
    parts.take_item(item);
    author_of(item) == ItemAuthor::Model && parts.ids.is_empty() && !parts.texts.is_empty()
}

/// The first characters of the texts, which are joined by newlines.
fn opening_of(texts: &[Cow<'_, str>]) -> String {
    let starts = texts.iter().take(OPENING_CHARS).map(|text| text.chars().take(OPENING_CHARS));
    let starts: Vec<String> = starts.map(Iterator::collect).collect();
    starts.join("\n").chars().take(OPENING_CHARS).collect()
}

/// The hash of author, ids and texts, one a line. A text may have the size of a whole body, so they are not joined.
fn essence_of(seed: u64, author: ItemAuthor, ids: &[&str], texts: &[Cow<'_, str>]) -> u64 {
    let mut hash = Xxh3::with_seed(seed);
    // Sessions store this hash, so its label must never change, whatever the variants are called.
    hash.update(author.hash_label().as_bytes());
    let mut add_lines = |lines: &mut dyn Iterator<Item = &str>| {
        hash.update(b"\n");
        for (at, line) in lines.enumerate() {
            if at > 0 {
                hash.update(b"\n");
            }
            hash.update(line.as_bytes());
        }
    };
    add_lines(&mut ids.iter().copied());
    add_lines(&mut texts.iter().map(AsRef::as_ref));
    hash.digest()
}

fn author_of(item: &Value) -> ItemAuthor {
    let is = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    match (is("role"), is("type")) {
        ("assistant" | "model", _) => ItemAuthor::Model,
        ("tool" | "function", _) => ItemAuthor::Tool,
        ("user", _) => ItemAuthor::User,
        ("system" | "developer", _) => ItemAuthor::Client,
        (_, kind) if kind.ends_with("_output") => ItemAuthor::Tool,
        (_, "message") => ItemAuthor::User,
        (_, "compaction" | "compaction_trigger") => ItemAuthor::Client,
        (_, "") => ItemAuthor::User,
        _ => ItemAuthor::Model,
    }
}

/// The parts of an item.
#[derive(Default)]
struct ItemParts<'a> {
    texts: Vec<&'a str>,
    /// Ids and names of calls, and ids of results.
    ids: Vec<&'a str>,
    /// The ids alone.
    call_ids: Vec<&'a str>,
    has_results: bool,
    /// Whether it has other content: an image, a document.
    has_others: bool,
}

impl<'a> ItemParts<'a> {
    fn take_item(&mut self, item: &'a Value) {
        let content = ["content", "parts"].iter().find_map(|name| item.get(*name));
        match content {
            // The text of a tool result is skipped: clients clear it.
            Some(Value::String(text)) if item.get("tool_call_id").is_none() => {
                self.texts.push(text);
            }
            Some(Value::Array(blocks)) if item.get("tool_call_id").is_none() => {
                blocks.iter().for_each(|block| self.take_block(block));
            }
            _ => {}
        }
        for call in item.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.take_ids(call, &["id"]);
            if let Some(function) = call.get("function") {
                self.take_ids(function, &["name"]);
            }
        }
        self.take_ids(item, &["call_id", "tool_call_id"]);
    }

    fn take_block(&mut self, block: &'a Value) {
        let text = || block.get("text").and_then(Value::as_str);
        let kind = block.get("type").and_then(Value::as_str);
        match kind {
            Some("text" | "input_text" | "output_text") => self.texts.extend(text()),
            // Clients drop thinking from older answers.
            Some("thinking" | "redacted_thinking") => {}
            Some("tool_use") => self.take_ids(block, &["id", "name"]),
            Some("tool_result") => {
                self.has_results = true;
                self.take_ids(block, &["tool_use_id"]);
            }
            Some(_) => self.has_others = true,
            None => self.take_part(block),
        }
    }

    /// A Gemini part, which has no type: its only field identifies it.
    fn take_part(&mut self, part: &'a Value) {
        if let Some(call) = part.get("functionCall") {
            self.take_ids(call, &["id", "name"]);
        } else if let Some(response) = part.get("functionResponse") {
            self.has_results = true;
            self.take_ids(response, &["id", "name"]);
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            if part.get("thought") != Some(&Value::Bool(true)) {
                self.texts.push(text);
            }
        } else {
            self.has_others = true;
        }
    }

    fn take_ids(&mut self, of: &'a Value, names: &[&str]) {
        for name in names {
            let Some(id) = of.get(*name).and_then(Value::as_str) else { continue };
            self.ids.push(id);
            if *name != "name" {
                self.call_ids.push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(item: &Value) -> ItemTraits {
        ItemTraits::from_item(7, item, item.to_string().len())
    }

    #[test]
    fn names_and_numbers_are_not_random_ids() {
        for id in [
            "call_Zk3v9QxYb1LmN0pRsTuVwX2a",
            "toolu_01A09q90qw90lq917835lq9",
            "chatcmpl-tool-0123456789abcdef0123456789abcdef",
            "call_0_4f1e2d3c-0a9b-4c8d-9e7f-0123456789ab",
        ] {
            assert!(is_random(id), "{id}");
        }
        for id in
            ["functions.read_file:10", "call_12", "mcp-server-filesystem-read-12", "D681PevKs"]
        {
            assert!(!is_random(id), "{id}");
        }
    }

    #[test]
    fn a_cleared_result_keeps_its_essence() {
        let results = |text: &str| {
            [
                json!({ "role": "tool", "tool_call_id": "c1", "content": text }),
                json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": text }] }),
                json!({ "type": "function_call_output", "call_id": "c1", "output": text }),
                json!({ "role": "user", "parts": [{ "functionResponse": { "id": "c1", "name": "read", "response": { "output": text } } }] }),
            ]
        };
        for (long, short) in results(&"long ".repeat(40)).iter().zip(&results("[cleared]")) {
            let (long, short) = (of(long), of(short));
            assert_eq!((long.author, long.essence), (ItemAuthor::Tool, short.essence));
            assert!(short.bytes < long.bytes);
        }
    }

    #[test]
    fn reminders_are_not_user_text() {
        let user = |text: &str| of(&json!({ "role": "user", "content": text }));
        let plain = user("Mend the parser.");
        let reminded = user("Mend the parser.\n<system-reminder>Be brief.</system-reminder>");
        assert_eq!((plain.author, plain.essence), (ItemAuthor::User, reminded.essence));
        assert_eq!(user("<system-reminder>Be brief.</system-reminder>").author, ItemAuthor::Client);
        assert_ne!(plain.essence, user("Mend the lexer.").essence);
    }

    #[test]
    fn thinking_is_ignored_and_calls_are_not() {
        let answer = |blocks: Value| of(&json!({ "role": "assistant", "content": blocks }));
        let call = json!({ "type": "tool_use", "id": "t1", "name": "read", "input": {} });
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let bare = answer(json!([call]));
        assert_eq!(bare.essence, answer(json!([thought, call])).essence);
        let other = json!({ "type": "tool_use", "id": "t2", "name": "read", "input": {} });
        assert_ne!(bare.essence, answer(json!([other])).essence);
    }

    #[test]
    fn an_answer_is_the_start_of_one_with_more_calls() {
        let answer = |calls: &[&str]| {
            let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": "{}" } });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": "I look.", "tool_calls": calls })
        };
        let is_start = |calls: &[&str]| of(&answer(&["a", "b"])).is_start_of(7, &answer(calls));
        assert!(is_start(&["a", "b", "c"]) && is_start(&["a", "b", "c", "d"]));
        assert!(!is_start(&["a"]) && !is_start(&["a", "c"]) && !is_start(&["c", "a", "b"]));
        let blocks = |count: usize| {
            let blocks =
                ["one", "two", "three"].map(|text| json!({ "type": "text", "text": text }));
            json!({ "role": "assistant", "content": blocks[..count] })
        };
        assert!(of(&blocks(1)).is_start_of(7, &blocks(3)));
        assert!(!of(&blocks(3)).is_start_of(7, &blocks(1)));
    }

    #[test]
    fn hashes_are_those_of_the_joined_texts() {
        for length in [0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1_024, 5_000] {
            let (first, second) = ("é".repeat(length), "text ".repeat(length));
            let blocks = [&first, &second].map(|text| json!({ "type": "text", "text": text }));
            let result = json!({ "type": "tool_result", "tool_use_id": "t1" });
            let [one, two] = blocks;
            let traits = of(&json!({ "role": "user", "content": [result, one, two] }));
            let texts: Vec<&str> =
                [first.trim(), second.trim()].into_iter().filter(|it| !it.is_empty()).collect();
            let text = texts.join("\n");
            let hash = |text: &str| xxh3_64_with_seed(text.as_bytes(), 7);
            assert_eq!(traits.essence, hash(&format!("Tool\nt1\n{text}")), "{length}");
            let opening: String = text.chars().take(OPENING_CHARS).collect();
            assert_eq!(traits.opening, if opening.is_empty() { 0 } else { hash(&opening) });
        }
    }

    #[test]
    fn a_word_round_trips() {
        let traits = of(&json!({ "role": "user", "content": "Mend the parser." }));
        assert_eq!(ItemTraits::from_word(&traits.to_word()), Some(traits));
        for wrong in ["", "p", "x1.2.3", "p1.2", "pg.1.1"] {
            assert_eq!(ItemTraits::from_word(wrong), None, "{wrong}");
        }
    }
}
