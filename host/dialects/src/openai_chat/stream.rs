//! Decodes the chunks of a streamed answer.

use serde_json::Value;

use super::usage::read_usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::failure::{excerpt, is_refusal, parse_refusal};
use crate::inbound::parse_item;
use crate::json::{text, update_text};
use crate::message::{ChatBlock, StopReason, TokenUsage, ToolCallBlock};
use crate::request::StreamPart;

/// Names of the field with the model's thinking. Only the first that is not empty counts, because
/// some servers send the same text under two names.
const THINKING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Decodes one answer: chunks, or the single document of a server that does not stream.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    blocks: Vec<PartialBlock>,
    usage: TokenUsage,
    finish_reason: String,
    response_id: String,
    model: String,
    is_done: bool,
}

/// A block that may still grow.
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
        let chunk: Value = serde_json::from_str(data).map_err(|_| invalid_chunk(data))?;
        if is_refusal(&chunk) {
            return Err(StreamError::Refused(parse_refusal(None, data)));
        }
        if !chunk.is_object() {
            return Err(invalid_chunk(data));
        }
        self.read_head(&chunk);
        if let Some(choice) = chunk.pointer("/choices/0") {
            self.read_choice(choice, parts);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        // Some servers omit the finish reason, others `[DONE]`. Either one completes the answer.
        if self.finish_reason.is_empty() && !self.is_done {
            return Err(StreamError::Cut);
        }
        let mut answer = ModelResponse {
            content: self.blocks.into_iter().map(PartialBlock::finish).collect(),
            usage: self.usage,
            response_id: self.response_id,
            model: self.model,
            ..ModelResponse::default()
        };
        answer.stop_reason = stop_reason(&self.finish_reason, answer.has_tool_calls());
        answer.raw_stop_reason = self.finish_reason;
        Ok(answer)
    }
}

impl ChatDecoder {
    fn read_head(&mut self, chunk: &Value) {
        update_text(&mut self.response_id, text(chunk, "id"));
        update_text(&mut self.model, text(chunk, "model"));
        // Some servers put the usage into the choice.
        let usage = chunk.get("usage").or_else(|| chunk.pointer("/choices/0/usage"));
        if let Some(usage) = usage.filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage);
        }
    }

    fn read_choice(&mut self, choice: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        // A server that does not stream sends `message` in place of `delta`.
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
        let field = THINKING_FIELDS.into_iter().find(|field| !text(delta, field).is_empty());
        if let Some(field) = field {
            self.add_thinking(text(delta, field), field, parts);
        }
    }

    fn read_content(&mut self, content: Option<&Value>, parts: &mut dyn FnMut(StreamPart<'_>)) {
        match content {
            Some(Value::String(text)) => self.add_text(text, parts),
            // Mistral sends thinking as parts of the content.
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
        let id = text(call, "id");
        let function = call.get("function").unwrap_or(&Value::Null);
        let new_name = text(function, "name");
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
            // Some servers send the whole arguments as an object.
            Some(whole @ Value::Object(_)) => *arguments = whole.to_string(),
            _ => {}
        }
    }

    /// The call that a delta continues.
    fn find_call(&self, delta_index: Option<u64>, delta_id: &str) -> Option<usize> {
        // Some servers omit indexes, some repeat the id, and some start a new call under the index
        // of the last one with another id.
        let is_same = |block: &PartialBlock| match block {
            PartialBlock::Call { index, id, .. } => {
                *index == delta_index && (delta_id.is_empty() || id == delta_id)
            }
            _ => false,
        };
        self.blocks.iter().rposition(is_same)
    }
}

impl PartialBlock {
    fn finish(self) -> ChatBlock {
        match self {
            PartialBlock::Text(text) => ChatBlock::text(text),
            // Pi's signature of such thinking is the name of its field.
            PartialBlock::Thinking { text, field } => {
                ChatBlock::thinking(text, Some(field.to_owned()))
            }
            PartialBlock::Call { id, name, arguments, .. } => {
                ChatBlock::ToolCall(ToolCallBlock::new(id, name, parse_arguments(arguments)))
            }
        }
    }
}

fn parse_arguments(text: String) -> Value {
    match text.trim() {
        // Null would mark an interrupted call, which is not sent again.
        "" | "null" => Value::Object(serde_json::Map::new()),
        // Arguments that are not JSON stay a string: the tool's error then shows them to the model.
        json => parse_item(json).unwrap_or(Value::String(text)),
    }
}

fn stop_reason(finish_reason: &str, has_calls: bool) -> StopReason {
    match finish_reason {
        "length" | "model_length" | "model_context_window_exceeded" => StopReason::Length,
        "content_filter" | "error" | "network_error" => StopReason::Error,
        // Some servers send `stop` with their calls.
        _ if has_calls => StopReason::ToolUse,
        _ => StopReason::Stop,
    }
}

/// The text of a part, or of the parts inside it.
fn inner_text(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(inner_text).collect(),
        other => text(other, "text").to_owned(),
    }
}

fn invalid_chunk(data: &str) -> StreamError {
    StreamError::invalid(format!("the data is not a chunk of an answer: {}", excerpt(data)))
}
