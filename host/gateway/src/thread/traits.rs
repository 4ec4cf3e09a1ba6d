//! What an item is, beside what it says exactly: whose it is, and what stays the same of it when its client
//! clears a result, drops thinking or takes a reminder away.

use ctxhost_session::injected;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::side_calls::asks_for_summary;

/// Characters of a person's words that two versions of one message begin with alike.
const OPENING_CHARS: usize = 48;

/// Whose an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Author {
    /// The person's words, maybe beside what a client put in.
    Person,
    /// What a client put in by itself: its context, or its request for a summary.
    Client,
    /// The model's: words, thinking, calls.
    Model,
    /// Results of tools, maybe with words behind them.
    Tool,
}

/// What stays the same of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Traits {
    /// Whose it is.
    pub author: Author,
    /// A name of the ids of calls and results in it, and of the words of person or model.
    pub essence: u64,
    /// A name of how the person's words begin; 0 where there are none.
    pub opening: u64,
    /// How long it is, in bytes of its JSON.
    pub bytes: u64,
}

impl Traits {
    /// Of an item that is `bytes` long.
    pub fn of(seed: u64, item: &Value, bytes: usize) -> Traits {
        let mut parts = Parts::default();
        let author = author(item);
        parts.take_item(item);
        let words = match author {
            Author::Model => parts.texts.join("\n"),
            _ => {
                let words = parts.texts.iter().filter(|text| !asks_for_summary(text));
                let words = words.map(|text| injected::words_of_person(text));
                words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n")
            }
        };
        let author = match author {
            Author::Person if parts.has_results => Author::Tool,
            Author::Person if words.is_empty() && !parts.has_others => Author::Client,
            author => author,
        };
        let name = |text: &str| xxh3_64_with_seed(text.as_bytes(), seed);
        let opening: String = words.chars().take(OPENING_CHARS).collect();
        let is_said = author != Author::Model && !opening.is_empty();
        Traits {
            author,
            essence: name(&format!("{author:?}\n{}\n{words}", parts.ids.join("\n"))),
            opening: if is_said { name(&opening) } else { 0 },
            bytes: bytes as u64,
        }
    }

    /// Whether the person says anything in it.
    pub fn has_words(&self) -> bool {
        self.opening != 0
    }

    /// In one word, for a record.
    pub fn to_word(self) -> String {
        let author = match self.author {
            Author::Person => 'p',
            Author::Client => 'c',
            Author::Model => 'm',
            Author::Tool => 't',
        };
        format!("{author}{:x}.{:x}.{:x}", self.essence, self.opening, self.bytes)
    }

    /// From such a word; `None` for anything else.
    pub fn from_word(word: &str) -> Option<Traits> {
        let author = match word.as_bytes().first()? {
            b'p' => Author::Person,
            b'c' => Author::Client,
            b'm' => Author::Model,
            b't' => Author::Tool,
            _ => return None,
        };
        let mut numbers = word.get(1..)?.split('.').map(|hex| u64::from_str_radix(hex, 16).ok());
        let mut next = || numbers.next().flatten();
        Some(Traits { author, essence: next()?, opening: next()?, bytes: next()? })
    }
}

fn author(item: &Value) -> Author {
    let is = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    match (is("role"), is("type")) {
        ("assistant" | "model", _) => Author::Model,
        ("tool" | "function", _) => Author::Tool,
        ("user", _) => Author::Person,
        ("system" | "developer", _) => Author::Client,
        (_, kind) if kind.ends_with("_output") => Author::Tool,
        (_, "message") => Author::Person,
        (_, "compaction" | "compaction_trigger") => Author::Client,
        (_, "") => Author::Person,
        _ => Author::Model,
    }
}

/// What an item is made of.
#[derive(Default)]
struct Parts {
    texts: Vec<String>,
    ids: Vec<String>,
    has_results: bool,
    /// Whether it holds something else: an image, a document.
    has_others: bool,
}

impl Parts {
    fn take_item(&mut self, item: &Value) {
        let content = ["content", "parts"].iter().find_map(|name| item.get(*name));
        match content {
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

    /// A part as Gemini writes it: its only field says what it is.
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

    fn of(item: &Value) -> Traits {
        Traits::of(7, item, item.to_string().len())
    }

    #[test]
    fn a_cleared_result_is_the_result_of_the_same_call() {
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
            assert_eq!((long.author, long.essence), (Author::Tool, short.essence));
            assert!(short.bytes < long.bytes);
        }
    }

    #[test]
    fn a_reminder_is_no_part_of_what_the_person_says() {
        let user = |text: &str| of(&json!({ "role": "user", "content": text }));
        let plain = user("Mend the parser.");
        let reminded = user("Mend the parser.\n<system-reminder>Be brief.</system-reminder>");
        assert_eq!((plain.author, plain.essence), (Author::Person, reminded.essence));
        assert_eq!(user("<system-reminder>Be brief.</system-reminder>").author, Author::Client);
        assert_ne!(plain.essence, user("Mend the lexer.").essence);
    }

    #[test]
    fn thinking_is_no_part_of_what_the_model_says_and_calls_are() {
        let answer = |blocks: Value| of(&json!({ "role": "assistant", "content": blocks }));
        let call = json!({ "type": "tool_use", "id": "t1", "name": "read", "input": {} });
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let bare = answer(json!([call]));
        assert_eq!(bare.essence, answer(json!([thought, call])).essence);
        let other = json!({ "type": "tool_use", "id": "t2", "name": "read", "input": {} });
        assert_ne!(bare.essence, answer(json!([other])).essence);
    }

    #[test]
    fn a_word_there_and_back() {
        let traits = of(&json!({ "role": "user", "content": "Mend the parser." }));
        assert_eq!(Traits::from_word(&traits.to_word()), Some(traits));
        for wrong in ["", "p", "x1.2.3", "p1.2", "pg.1.1"] {
            assert_eq!(Traits::from_word(wrong), None, "{wrong}");
        }
    }
}
