//! The answer, put together from its chunks.

use serde_json::Value;

use super::usage::read_usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::failure::{excerpt, is_refusal, parse_refusal};
use crate::message::{ChatBlock, StopReason, TokenUsage, ToolCallBlock};
use crate::request::StreamPart;

/// What servers call the field of a model's thinking; the first that is not empty counts, because
/// some send the same under two names.
const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Reads chunks, and whole answers of servers that do not stream.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    blocks: Vec<PartialBlock>,
    usage: TokenUsage,
    finish_reason: String,
    response_id: String,
    model: String,
    is_done: bool,
}

/// One block that may still grow.
#[derive(Debug)]
enum PartialBlock {
    Text(String),
    Thinking { text: String, field: &'static str },
    Call { index: Option<u64>, id: String, name: String, arguments: String },
}

impl Decoder for ChatDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let data = frame.data.trim();
        if data == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| nonsense(data))?;
        if is_refusal(&chunk) {
            return Err(StreamError::Refused(parse_refusal(None, data)));
        }
        if !chunk.is_object() {
            return Err(nonsense(data));
        }
        self.read_head(&chunk);
        if let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) {
            self.read_choice(choice, parts);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        if self.finish_reason.is_empty() && !self.is_done {
            return Err(StreamError::Cut);
        }
        let calls = self.blocks.iter().any(|piece| matches!(piece, PartialBlock::Call { .. }));
        Ok(ModelResponse {
            stop_reason: stop_reason(&self.finish_reason, calls),
            content: self.blocks.into_iter().map(PartialBlock::finish).collect(),
            usage: self.usage,
            raw_stop_reason: self.finish_reason,
            response_id: self.response_id,
            model: self.model,
        })
    }
}

impl ChatDecoder {
    fn read_head(&mut self, chunk: &Value) {
        let keep = |field: &str, place: &mut String| {
            if let Some(text) = chunk.get(field).and_then(Value::as_str).filter(|it| !it.is_empty())
            {
                text.clone_into(place);
            }
        };
        keep("id", &mut self.response_id);
        keep("model", &mut self.model);
        let choice = || chunk.get("choices")?.get(0)?.get("usage");
        if let Some(usage) = chunk.get("usage").or_else(choice).filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage);
        }
    }

    fn read_choice(&mut self, choice: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        // A server that does not stream says `message` where others say `delta`.
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.read_thinking(delta, parts);
            self.read_content(delta.get("content"), parts);
            self.read_content(delta.get("refusal"), parts);
            let calls = delta.get("tool_calls").and_then(Value::as_array);
            for call in calls.into_iter().flatten() {
                self.read_call(call, parts);
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            reason.clone_into(&mut self.finish_reason);
        }
    }

    fn read_thinking(&mut self, delta: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let field = THINKING_FIELDS.into_iter().find_map(|field| {
            let text = delta.get(field)?.as_str().filter(|text| !text.is_empty())?;
            Some((field, text))
        });
        if let Some((field, text)) = field {
            self.add_thinking(text, field, parts);
        }
    }

    /// Content is text, or a list of parts (Mistral's thinking comes as such).
    fn read_content(&mut self, content: Option<&Value>, parts: &mut dyn FnMut(StreamPart<'_>)) {
        match content {
            Some(Value::String(text)) => self.add_text(text, parts),
            Some(Value::Array(items)) => {
                for item in items {
                    match item.get("thinking") {
                        Some(thinking) => {
                            let text = inner_text(thinking);
                            self.add_thinking(&text, "reasoning_content", parts);
                        }
                        None => self.add_text(&inner_text(item), parts),
                    }
                }
            }
            _ => {}
        }
    }

    fn add_text(&mut self, text: &str, parts: &mut dyn FnMut(StreamPart<'_>)) {
        if text.is_empty() {
            return;
        }
        parts(StreamPart::Text(text));
        match self.blocks.last_mut() {
            Some(PartialBlock::Text(whole)) => whole.push_str(text),
            _ => self.blocks.push(PartialBlock::Text(text.to_owned())),
        }
    }

    fn add_thinking(
        &mut self,
        more: &str,
        field: &'static str,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) {
        if more.is_empty() {
            return;
        }
        parts(StreamPart::Thinking(more));
        match self.blocks.last_mut() {
            Some(PartialBlock::Thinking { text, .. }) => text.push_str(more),
            _ => self.blocks.push(PartialBlock::Thinking { text: more.to_owned(), field }),
        }
    }

    fn read_call(&mut self, call: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let index = call.get("index").and_then(Value::as_u64);
        let id = text_of(call.get("id"));
        let function = call.get("function").unwrap_or(&Value::Null);
        let new_name = text_of(function.get("name"));
        let at = self.find_call(index, id).unwrap_or_else(|| {
            let (id, name, arguments) = (id.to_owned(), String::new(), String::new());
            self.blocks.push(PartialBlock::Call { index, id, name, arguments });
            self.blocks.len() - 1
        });
        let Some(PartialBlock::Call { name, arguments, .. }) = self.blocks.get_mut(at) else {
            return;
        };
        if name.is_empty() && !new_name.is_empty() {
            new_name.clone_into(name);
            parts(StreamPart::ToolCall { name });
        }
        match function.get("arguments") {
            Some(Value::String(piece)) => arguments.push_str(piece),
            Some(whole @ Value::Object(_)) => *arguments = whole.to_string(),
            _ => {}
        }
    }

    /// The call that a delta goes on with: the same index and no other id; without an index, the
    /// same id, or the last call.
    fn find_call(&self, of_index: Option<u64>, of_id: &str) -> Option<usize> {
        let is_it = |piece: &PartialBlock| match piece {
            PartialBlock::Call { index, id, .. } => {
                *index == of_index && (of_id.is_empty() || id == of_id)
            }
            _ => false,
        };
        self.blocks.iter().rposition(is_it)
    }
}

impl PartialBlock {
    fn finish(self) -> ChatBlock {
        match self {
            PartialBlock::Text(text) => ChatBlock::text(text),
            PartialBlock::Thinking { text, field } => ChatBlock::Thinking {
                thinking: text,
                // As Pi writes it: the name of the field that it came in.
                thinking_signature: Some(field.to_owned()),
                redacted: false,
            },
            PartialBlock::Call { id, name, arguments, .. } => ChatBlock::ToolCall(ToolCallBlock {
                id,
                name,
                arguments: read_arguments(arguments),
                thought_signature: None,
            }),
        }
    }
}

/// Arguments that are no JSON stay as the text they are, so that the tool can say so.
fn read_arguments(text: String) -> Value {
    match text.trim() {
        "" => Value::Object(serde_json::Map::new()),
        json => serde_json::from_str(json).unwrap_or(Value::String(text)),
    }
}

fn stop_reason(finish_reason: &str, has_calls: bool) -> StopReason {
    match finish_reason {
        "length" | "model_length" | "model_context_window_exceeded" => StopReason::Length,
        "content_filter" | "error" | "network_error" => StopReason::Error,
        // Some servers say `stop` and mean their calls.
        _ if has_calls => StopReason::ToolUse,
        _ => StopReason::Stop,
    }
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The text in a part, or in the parts of a part.
fn inner_text(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(inner_text).collect(),
        other => text_of(other.get("text")).to_owned(),
    }
}

fn nonsense(data: &str) -> StreamError {
    StreamError::InvalidFrame { reason: format!("no chunk of an answer: {}", excerpt(data)) }
}
