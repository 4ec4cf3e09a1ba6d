//! One block of a stream, from its first event to its content.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::anthropic::API;
use crate::json::string;
use crate::message::{ChatBlock, ToolCallBlock, arguments_object};
use crate::request::StreamPart;

/// A block that is still coming.
#[derive(Debug)]
pub(super) enum StreamBlock {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    Redacted(String),
    Call {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// A block that only this dialect knows; it is kept as it comes and sent back so.
    Item {
        item: Map<String, Value>,
        json: String,
    },
}

impl StreamBlock {
    /// As it begins.
    pub(super) fn open(begun: &Value) -> StreamBlock {
        match begun.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => StreamBlock::Text(string(begun, "text")),
            "thinking" => StreamBlock::Thinking {
                thinking: string(begun, "thinking"),
                signature: string(begun, "signature"),
            },
            "redacted_thinking" => StreamBlock::Redacted(string(begun, "data")),
            "tool_use" => StreamBlock::Call {
                id: string(begun, "id"),
                name: string(begun, "name"),
                input: begun.get("input").cloned().unwrap_or_default(),
                json: String::new(),
            },
            _ => StreamBlock::Item {
                item: begun.as_object().cloned().unwrap_or_default(),
                json: String::new(),
            },
        }
    }

    /// Says what is in it from the beginning.
    pub(super) fn emit_start(&self, parts: &mut dyn FnMut(StreamPart<'_>)) {
        match self {
            StreamBlock::Text(text) if !text.is_empty() => parts(StreamPart::Text(text)),
            StreamBlock::Thinking { thinking, .. } if !thinking.is_empty() => {
                parts(StreamPart::Thinking(thinking));
            }
            StreamBlock::Call { name, .. } => parts(StreamPart::ToolCall { name }),
            _ => {}
        }
    }

    /// More of it. What belongs to another type is passed over.
    pub(super) fn append(&mut self, delta: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let piece = |key| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match self {
            StreamBlock::Text(text) => {
                text.push_str(piece("text"));
                emit_part(StreamPart::Text(piece("text")), parts);
            }
            StreamBlock::Thinking { thinking, signature } => {
                thinking.push_str(piece("thinking"));
                signature.push_str(piece("signature"));
                emit_part(StreamPart::Thinking(piece("thinking")), parts);
            }
            StreamBlock::Redacted(data) => data.push_str(piece("data")),
            StreamBlock::Call { json, .. } => json.push_str(piece("partial_json")),
            StreamBlock::Item { item, json } => {
                json.push_str(piece("partial_json"));
                append_item(item, delta);
            }
        }
    }

    /// Whether it is a call whose arguments have not come, or not all of them.
    pub(super) fn is_incomplete_call(&self) -> bool {
        let StreamBlock::Call { input, json, .. } = self else { return false };
        let begun_whole = input.as_object().is_some_and(|fields| !fields.is_empty());
        !(begun_whole && json.is_empty()) && serde_json::from_str::<IgnoredAny>(json).is_err()
    }

    /// Its content; none where it stayed empty.
    pub(super) fn finish(self) -> Result<Option<ChatBlock>, String> {
        Ok(match self {
            StreamBlock::Text(text) => {
                Some(text).filter(|text| !text.is_empty()).map(ChatBlock::text)
            }
            StreamBlock::Thinking { thinking, signature } => {
                let any = !thinking.is_empty() || !signature.is_empty();
                any.then(|| ChatBlock::Thinking {
                    thinking,
                    thinking_signature: Some(signature).filter(|signature| !signature.is_empty()),
                    redacted: false,
                })
            }
            StreamBlock::Redacted(data) => Some(ChatBlock::Thinking {
                thinking: String::new(),
                thinking_signature: Some(data),
                redacted: true,
            }),
            StreamBlock::Call { id, name, input, json } => {
                let arguments =
                    Value::Object(arguments_object(&parse_arguments(&json, input, &name)?));
                Some(ChatBlock::ToolCall(ToolCallBlock {
                    id,
                    name,
                    arguments,
                    thought_signature: None,
                }))
            }
            StreamBlock::Item { mut item, json } => {
                if !json.is_empty() {
                    item.insert("input".into(), parse_arguments(&json, Value::Null, "an item")?);
                }
                Some(ChatBlock::ProviderItem { api: API.into(), item: item.into() })
            }
        })
    }
}

fn emit_part(part: StreamPart<'_>, parts: &mut dyn FnMut(StreamPart<'_>)) {
    if !matches!(part, StreamPart::Text("") | StreamPart::Thinking("")) {
        parts(part);
    }
}

/// Arguments that came in pieces, or all at once with the beginning.
fn parse_arguments(json: &str, begun: Value, name: &str) -> Result<Value, String> {
    if json.trim().is_empty() {
        return Ok(begun);
    }
    serde_json::from_str(json)
        .map_err(|error| format!("the arguments of {name} are no JSON: {error}"))
}

/// Texts grow, everything else is replaced.
fn append_item(item: &mut Map<String, Value>, delta: &Value) {
    let fields = delta.as_object().into_iter().flatten();
    for (key, value) in fields.filter(|(key, _)| !matches!(key.as_str(), "type" | "partial_json")) {
        match (item.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            _ => {
                item.insert(key.clone(), value.clone());
            }
        }
    }
}
