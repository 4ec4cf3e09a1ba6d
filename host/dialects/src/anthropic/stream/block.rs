//! One block of a stream, from its first event to its content.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::anthropic::API;
use crate::inbound::parse_item;
use crate::json::{string, text};
use crate::message::{ChatBlock, ToolCallBlock, arguments_object};
use crate::request::StreamPart;

/// A block that is still streamed.
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
    /// A block of another type, kept as it comes and sent back unchanged.
    Item {
        item: Map<String, Value>,
        json: String,
    },
}

impl StreamBlock {
    pub(super) fn start(block: &Value) -> StreamBlock {
        match text(block, "type") {
            "text" => StreamBlock::Text(string(block, "text")),
            "thinking" => StreamBlock::Thinking {
                thinking: string(block, "thinking"),
                signature: string(block, "signature"),
            },
            "redacted_thinking" => StreamBlock::Redacted(string(block, "data")),
            "tool_use" => StreamBlock::Call {
                id: string(block, "id"),
                name: string(block, "name"),
                input: block.get("input").cloned().unwrap_or_default(),
                json: String::new(),
            },
            // Blocks of newer versions of the API are kept as they come, so that they can be sent back.
            _ => StreamBlock::Item {
                item: block.as_object().cloned().unwrap_or_default(),
                json: String::new(),
            },
        }
    }

    /// Passes on what the first event already holds.
    pub(super) fn emit_start(&self, parts: &mut dyn FnMut(StreamPart<'_>)) {
        match self {
            StreamBlock::Text(text) => emit_part(StreamPart::Text(text), parts),
            StreamBlock::Thinking { thinking, .. } => {
                emit_part(StreamPart::Thinking(thinking), parts);
            }
            StreamBlock::Call { name, .. } => parts(StreamPart::ToolCall { name }),
            StreamBlock::Redacted(_) | StreamBlock::Item { .. } => {}
        }
    }

    /// Appends a delta. Fields of other block types are ignored.
    pub(super) fn append(&mut self, delta: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        match self {
            StreamBlock::Text(whole) => {
                whole.push_str(text(delta, "text"));
                emit_part(StreamPart::Text(text(delta, "text")), parts);
            }
            StreamBlock::Thinking { thinking, signature } => {
                thinking.push_str(text(delta, "thinking"));
                signature.push_str(text(delta, "signature"));
                emit_part(StreamPart::Thinking(text(delta, "thinking")), parts);
            }
            StreamBlock::Redacted(data) => data.push_str(text(delta, "data")),
            StreamBlock::Call { json, .. } => json.push_str(text(delta, "partial_json")),
            StreamBlock::Item { item, json } => {
                json.push_str(text(delta, "partial_json"));
                append_fields(item, delta);
            }
        }
    }

    /// Whether it is a call whose arguments are missing or incomplete.
    pub(super) fn is_incomplete_call(&self) -> bool {
        let StreamBlock::Call { input, json, .. } = self else { return false };
        // A server may send the arguments whole at the start, and then no deltas.
        let has_input = input.as_object().is_some_and(|fields| !fields.is_empty());
        !(has_input && json.is_empty()) && serde_json::from_str::<IgnoredAny>(json).is_err()
    }

    /// The content; `None` if the block stayed empty.
    pub(super) fn finish(self) -> Result<Option<ChatBlock>, String> {
        Ok(match self {
            StreamBlock::Text(text) => {
                Some(text).filter(|text| !text.is_empty()).map(ChatBlock::text)
            }
            StreamBlock::Thinking { thinking, signature } => {
                let is_empty = thinking.is_empty() && signature.is_empty();
                let signature = Some(signature).filter(|signature| !signature.is_empty());
                (!is_empty).then(|| ChatBlock::thinking(thinking, signature))
            }
            StreamBlock::Redacted(data) => Some(ChatBlock::Thinking {
                thinking: String::new(),
                thinking_signature: Some(data),
                redacted: true,
            }),
            StreamBlock::Call { id, name, input, json } => {
                let arguments = arguments_object(&parse_arguments(&json, input, &name)?);
                Some(ChatBlock::ToolCall(ToolCallBlock::new(id, name, arguments.into())))
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

/// Arguments from the deltas; without deltas those of the first event.
fn parse_arguments(json: &str, first: Value, name: &str) -> Result<Value, String> {
    if json.trim().is_empty() {
        return Ok(first);
    }
    parse_item(json).map_err(|error| format!("the arguments of {name} are not JSON: {error}"))
}

/// Appends texts and replaces all other fields.
fn append_fields(item: &mut Map<String, Value>, delta: &Value) {
    let fields = delta.as_object().into_iter().flatten();
    for (key, value) in fields.filter(|(key, _)| !matches!(key.as_str(), "type" | "partial_json")) {
        match (item.get_mut(key), value) {
            // Deltas of texts append, all others replace.
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            _ => {
                item.insert(key.clone(), value.clone());
            }
        }
    }
}
