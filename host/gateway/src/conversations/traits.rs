//! The traits of an item: its author, and what stays the same if its client clears a result, drops thinking or
//! removes a reminder.

use ctxhost_session::injected_text;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::side_calls::asks_for_summary;

/// The characters by which two versions of a user message are recognized.
const OPENING_CHARS: usize = 48;

/// The author of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ItemAuthor {
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
        let text = match author {
            ItemAuthor::Model => parts.texts.join("\n"),
            _ => {
                let text = parts.texts.iter().filter(|text| !asks_for_summary(text));
                let text = text.map(|text| injected_text::user_text(text));
                text.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
            }
        };
        let author = match author {
            ItemAuthor::User if parts.has_results => ItemAuthor::Tool,
            ItemAuthor::User if text.is_empty() && !parts.has_others => ItemAuthor::Client,
            author => author,
        };
        let name = |text: &str| xxh3_64_with_seed(text.as_bytes(), seed);
        let opening: String = text.chars().take(OPENING_CHARS).collect();
        let is_said = author != ItemAuthor::Model && !opening.is_empty();
        ItemTraits {
            author,
            // Sessions store this hash, so its label must never change, whatever the variants are called.
            essence: name(&format!("{}\n{}\n{text}", author.hash_label(), parts.ids.join("\n"))),
            opening: if is_said { name(&opening) } else { 0 },
            bytes: bytes as u64,
        }
    }

    /// Whether it has user text.
    pub(crate) fn has_user_text(&self) -> bool {
        self.opening != 0
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
struct ItemParts {
    texts: Vec<String>,
    ids: Vec<String>,
    has_results: bool,
    /// Whether it has other content: an image, a document.
    has_others: bool,
}

impl ItemParts {
    fn take_item(&mut self, item: &Value) {
        let content = ["content", "parts"].iter().find_map(|name| item.get(*name));
        match content {
            // The text of a tool result is skipped: clients clear it.
            Some(Value::String(text)) if item.get("tool_call_id").is_none() => {
                self.texts.push(text.clone());
            }
            Some(Value::Array(blocks)) if item.get("tool_call_id").is_none() => {
                blocks.iter().for_each(|block| self.take_block(block));
            }
            _ => {}
        }
        for call in item.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.take_ids(call, &["id"]);
            self.take_ids(call.get("function").unwrap_or(&Value::Null), &["name"]);
        }
        self.take_ids(item, &["call_id", "tool_call_id"]);
    }

    fn take_block(&mut self, block: &Value) {
        let text = || block.get("text").and_then(Value::as_str).map(str::to_owned);
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
    fn take_part(&mut self, part: &Value) {
        if let Some(call) = part.get("functionCall") {
            self.take_ids(call, &["id", "name"]);
        } else if let Some(response) = part.get("functionResponse") {
            self.has_results = true;
            self.take_ids(response, &["id", "name"]);
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            if part.get("thought") != Some(&Value::Bool(true)) {
                self.texts.push(text.to_owned());
            }
        } else {
            self.has_others = true;
        }
    }

    fn take_ids(&mut self, of: &Value, names: &[&str]) {
        let ids = names.iter().filter_map(|name| of.get(*name)?.as_str());
        self.ids.extend(ids.map(str::to_owned));
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
    fn a_word_round_trips() {
        let traits = of(&json!({ "role": "user", "content": "Mend the parser." }));
        assert_eq!(ItemTraits::from_word(&traits.to_word()), Some(traits));
        for wrong in ["", "p", "x1.2.3", "p1.2", "pg.1.1"] {
            assert_eq!(ItemTraits::from_word(wrong), None, "{wrong}");
        }
    }
}
