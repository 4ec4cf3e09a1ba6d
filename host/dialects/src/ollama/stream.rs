//! Decodes the lines of a streamed answer.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::errors::refusal;
use super::usage::usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::failure::ProviderRefusal;
use crate::message::{ChatBlock, StopReason, ToolCallBlock};
use crate::request::StreamPart;

/// Decodes one answer. Its last line has `done`.
#[derive(Debug, Default)]
pub(super) struct OllamaDecoder {
    text: String,
    thinking: String,
    calls: Vec<ToolCallBlock>,
    response: Option<ModelResponse>,
}

/// One line. Any field may be missing, and newer versions may add more.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OllamaChunk {
    model: String,
    created_at: String,
    message: Option<OllamaMessage>,
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: u64,
    prompt_eval_cached_count: u64,
    eval_count: u64,
    error: Option<Value>,
    code: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OllamaMessage {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<OllamaToolCall>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OllamaToolCall {
    id: Option<String>,
    function: OllamaFunction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OllamaFunction {
    name: String,
    arguments: Value,
}

impl Decoder for OllamaDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let data = frame.data.trim();
        if data.is_empty() || self.response.is_some() {
            return Ok(());
        }
        let mut line: OllamaChunk = serde_json::from_str(data).map_err(|error| {
            StreamError::invalid(format!(
                "a line of the stream does not match Ollama's API: {error}"
            ))
        })?;
        // Errors after the first line come with status 200.
        if let Some(error) = &line.error {
            return Err(StreamError::Refused(refusal(error, line.code.unwrap_or_default())));
        }
        if let Some(message) = line.message.take() {
            self.append_message(message, &line.created_at, parts);
        }
        if line.done {
            self.response = Some(finish_response(line)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        let mut answer = self.response.ok_or(StreamError::Cut)?;
        if !self.thinking.is_empty() {
            answer.content.push(ChatBlock::thinking(self.thinking, None));
        }
        if !self.text.is_empty() {
            answer.content.push(ChatBlock::text(self.text));
        }
        // Ollama has no stop reason for calls.
        if !self.calls.is_empty() && answer.stop_reason == StopReason::Stop {
            answer.stop_reason = StopReason::ToolUse;
        }
        answer.content.extend(self.calls.into_iter().map(ChatBlock::ToolCall));
        Ok(answer)
    }
}

impl OllamaDecoder {
    fn append_message(
        &mut self,
        message: OllamaMessage,
        created_at: &str,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) {
        if let Some(thinking) = message.thinking.filter(|text| !text.is_empty()) {
            parts(StreamPart::Thinking(&thinking));
            self.thinking.push_str(&thinking);
        }
        if let Some(text) = message.content.filter(|text| !text.is_empty()) {
            parts(StreamPart::Text(&text));
            self.text.push_str(&text);
        }
        for call in message.tool_calls.unwrap_or_default() {
            let OllamaFunction { name, arguments } = call.function;
            parts(StreamPart::ToolCall { name: &name });
            let given = call.id.filter(|id| !id.is_empty());
            let id = given.unwrap_or_else(|| {
                derive_call_id(&[
                    created_at,
                    &self.calls.len().to_string(),
                    &name,
                    &arguments.to_string(),
                ])
            });
            // `null` would mark an interrupted call (see `cross_model`).
            let arguments = if arguments.is_null() { json!({}) } else { arguments };
            self.calls.push(ToolCallBlock::new(id, name, arguments));
        }
    }
}

/// An id for a call without one: equal for equal lines, and unique because the line's time is part
/// of the hash.
fn derive_call_id(fields: &[&str]) -> String {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update(field.len().to_le_bytes());
        hash.update(field.as_bytes());
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("call_{hex}")
}

/// Reads the last line: token counts and stop reason.
fn finish_response(line: OllamaChunk) -> Result<ModelResponse, StreamError> {
    let reason = line.done_reason.unwrap_or_else(|| "stop".to_owned());
    let stop_reason = match reason.as_str() {
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        "load" | "unload" => {
            let message = format!(
                "the server only {reason}ed the model, because the request had no messages"
            );
            return Err(StreamError::Refused(ProviderRefusal {
                status: None,
                code: reason,
                message,
            }));
        }
        _ => StopReason::Other,
    };
    Ok(ModelResponse {
        usage: usage(line.prompt_eval_count, line.prompt_eval_cached_count, line.eval_count),
        stop_reason,
        raw_stop_reason: reason,
        model: line.model,
        ..ModelResponse::default()
    })
}
