//! Chats: the message lists of the two API dialects, as a list, a request body, or one by line.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ImportProblem;
use super::json_lines::{JsonRecord, records, strip_bom};

/// A message list with what the request said beside it.
pub(super) struct ChatDocument {
    /// The system prompt where it stands beside the messages; else `null`.
    pub(super) system: Value,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<Value>,
    pub(super) messages: Vec<Result<JsonRecord, ImportProblem>>,
}

impl ChatDocument {
    /// The chat that the bytes hold: one document, else one message by line.
    pub(super) fn read(bytes: &[u8]) -> ChatDocument {
        ChatDocument::document(bytes).unwrap_or_else(|| ChatDocument::of(records(bytes).collect()))
    }

    /// The chat of a list of messages or of a request body; `None` where the bytes are neither.
    pub(super) fn document(bytes: &[u8]) -> Option<ChatDocument> {
        let text = std::str::from_utf8(strip_bom(bytes)).ok()?;
        if text.trim_start().starts_with('[') {
            let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            return Some(ChatDocument::of(located(text, &messages)));
        }
        let body: ChatBody<'_> = serde_json::from_str(text).ok()?;
        let messages = located(text, &body.messages);
        let ChatBody { system, model, tools, .. } = body;
        let model = model.as_str().map(str::to_owned);
        let tools = if let Value::Array(tools) = tools { tools } else { Vec::new() };
        Some(ChatDocument { system, model, tools, messages })
    }

    fn of(messages: Vec<Result<JsonRecord, ImportProblem>>) -> ChatDocument {
        ChatDocument { system: Value::Null, model: None, tools: Vec::new(), messages }
    }
}

#[derive(Deserialize)]
struct ChatBody<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    #[serde(default)]
    system: Value,
    #[serde(default)]
    model: Value,
    #[serde(default)]
    tools: Value,
}

/// The elements of a list with the lines they begin in, found by where they lie in the text.
fn located(text: &str, elements: &[&RawValue]) -> Vec<Result<JsonRecord, ImportProblem>> {
    let (mut offset, mut line) = (0, 1);
    let mut records = Vec::with_capacity(elements.len());
    for element in elements.iter().map(|element| element.get()) {
        let begin = element.as_ptr().addr().saturating_sub(text.as_ptr().addr());
        let passed = text.as_bytes().get(offset..begin).unwrap_or_default();
        line += memchr::memchr_iter(b'\n', passed).count() as u64;
        offset = begin;
        records.push(JsonRecord::parse(line, element.as_bytes()));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<u64> {
        let chat = ChatDocument::read(text.as_bytes());
        let line = |message: Result<JsonRecord, ImportProblem>| {
            message.map_or_else(|p| p.line, |r| r.line)
        };
        chat.messages.into_iter().map(line).collect()
    }

    #[test]
    fn elements_keep_their_lines() {
        assert_eq!(lines("\u{FEFF}[\n {\"role\":\"user\"},\n\n 7,{}]"), [2, 4, 4]);
        assert_eq!(lines("{\"model\":\"m\",\n\"messages\":[{},\n{}]}"), [2, 3]);
        assert_eq!(lines("{}\n\n{}"), [1, 3]);
        assert_eq!(lines(""), [0; 0]);
    }

    #[test]
    fn what_stands_beside_the_messages() {
        let body =
            br#"{"messages":[],"system":"s","model":"m","tools":[{"name":"t"}],"stream":true}"#;
        let chat = ChatDocument::document(body).unwrap();
        assert_eq!(
            (chat.system, chat.model.as_deref(), chat.tools.len()),
            ("s".into(), Some("m"), 1)
        );
        assert!(ChatDocument::document(br#"{"input":[]}"#).is_none());
    }
}
