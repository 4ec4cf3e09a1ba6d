//! Message lists of the two API dialects: a JSON list, a request body, or JSON lines.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_lines::{JsonRecord, records, strip_bom};
use super::transcript::ImportProblem;

/// A message list and the other fields of its request body.
pub(super) struct ChatDocument {
    /// The `system` field of the request body, or `null`.
    pub(super) system: Value,
    /// The `instructions` field of a request body of the Responses API, or `null`.
    pub(super) instructions: Value,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<Value>,
    pub(super) messages: Vec<Result<JsonRecord, ImportProblem>>,
}

impl ChatDocument {
    /// Reads one JSON document, or one message per line.
    pub(super) fn read(bytes: &[u8]) -> ChatDocument {
        ChatDocument::document(bytes).unwrap_or_else(|| ChatDocument::of(records(bytes).collect()))
    }

    /// Reads a list of messages or a request body; `None` if the bytes are neither.
    pub(super) fn document(bytes: &[u8]) -> Option<ChatDocument> {
        let text = std::str::from_utf8(strip_bom(bytes)).ok()?;
        if text.trim_start().starts_with('[') {
            let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            return Some(ChatDocument::of(located(text, &messages)));
        }
        let body: ChatBody<'_> = serde_json::from_str(text).ok()?;
        let ChatBody { messages, input, system, instructions, model, tools } = body;
        // The Responses API calls its list of items `input`.
        let messages = match messages {
            Some(messages) => messages,
            None => serde_json::from_str(input?.get()).ok()?,
        };
        let messages = located(text, &messages);
        let model = model.as_str().map(str::to_owned);
        let tools = if let Value::Array(tools) = tools { tools } else { Vec::new() };
        Some(ChatDocument { system, instructions, model, tools, messages })
    }

    fn of(messages: Vec<Result<JsonRecord, ImportProblem>>) -> ChatDocument {
        let (system, instructions) = (Value::Null, Value::Null);
        ChatDocument { system, instructions, model: None, tools: Vec::new(), messages }
    }
}

#[derive(Deserialize)]
struct ChatBody<'a> {
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    system: Value,
    #[serde(default)]
    instructions: Value,
    #[serde(default)]
    model: Value,
    #[serde(default)]
    tools: Value,
}

/// The elements of a list with the lines that they start on.
fn located(text: &str, elements: &[&RawValue]) -> Vec<Result<JsonRecord, ImportProblem>> {
    let (mut offset, mut line) = (0, 1);
    let mut records = Vec::with_capacity(elements.len());
    for element in elements.iter().map(|element| element.get()) {
        // A raw value borrows from the text, so its address gives its position.
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
    fn fields_beside_the_messages() {
        let body =
            br#"{"messages":[],"system":"s","model":"m","tools":[{"name":"t"}],"stream":true}"#;
        let chat = ChatDocument::document(body).unwrap();
        assert_eq!(
            (chat.system, chat.model.as_deref(), chat.tools.len()),
            ("s".into(), Some("m"), 1)
        );
        for both in
            [&br#"{"input":[{}],"messages":[{},{}]}"#[..], br#"{"messages":[{},{}],"input":7}"#]
        {
            assert_eq!(ChatDocument::document(both).unwrap().messages.len(), 2);
        }
        for neither in [&br#"{"output":[]}"#[..], br#"{"input":"text"}"#, br#"{"messages":null}"#] {
            assert!(ChatDocument::document(neither).is_none());
        }
    }
}
