//! The lines of a streamed answer.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::errors::refusal;
use super::usage::usage;
use crate::dialect::{Answer, Decoder, Frame, StreamFault};
use crate::failure::Refusal;
use crate::message::{Content, StopReason, ToolCall};
use crate::request::StreamPart;

/// Puts an answer together. It is whole with the line that says `done`.
#[derive(Debug, Default)]
pub(super) struct OllamaDecoder {
    text: String,
    thinking: String,
    calls: Vec<ToolCall>,
    ended: Option<Answer>,
}

/// One line. Every field may be missing, and newer versions may have more.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    model: String,
    created_at: String,
    message: Option<LineMessage>,
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
struct LineMessage {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<LineCall>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineCall {
    id: Option<String>,
    function: LineFunction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineFunction {
    name: String,
    arguments: Value,
}

impl Decoder for OllamaDecoder {
    fn push(
        &mut self,
        frame: Frame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        let data = frame.data.trim();
        if data.is_empty() || self.ended.is_some() {
            return Ok(());
        }
        let mut line: Line = serde_json::from_str(data).map_err(|error| {
            let reason = format!("a line of the stream is not what Ollama writes: {error}");
            StreamFault::Nonsense { reason }
        })?;
        if let Some(error) = &line.error {
            return Err(StreamFault::Refused(refusal(error, line.code.unwrap_or_default())));
        }
        if let Some(message) = line.message.take() {
            self.hear(message, &line.created_at, parts);
        }
        if line.done {
            self.ended = Some(end(line)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, StreamFault> {
        let mut answer = self.ended.ok_or(StreamFault::Cut)?;
        if !self.thinking.is_empty() {
            answer.content.push(Content::Thinking {
                thinking: self.thinking,
                thinking_signature: None,
                redacted: false,
            });
        }
        if !self.text.is_empty() {
            answer.content.push(Content::text(self.text));
        }
        if !self.calls.is_empty() && answer.stop_reason == StopReason::Stop {
            answer.stop_reason = StopReason::ToolUse;
        }
        answer.content.extend(self.calls.into_iter().map(Content::ToolCall));
        Ok(answer)
    }
}

impl OllamaDecoder {
    fn hear(
        &mut self,
        message: LineMessage,
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
            let LineFunction { name, arguments } = call.function;
            parts(StreamPart::ToolCall { name: &name });
            let given = call.id.filter(|id| !id.is_empty());
            let id = given.unwrap_or_else(|| {
                made_id(&[created_at, &self.calls.len().to_string(), &name, &arguments.to_string()])
            });
            let arguments = if arguments.is_null() { json!({}) } else { arguments };
            self.calls.push(ToolCall { id, name, arguments, thought_signature: None });
        }
    }
}

/// An id for a call that has none: the same for the same line, and different for every other,
/// because the line's time is in it.
fn made_id(of: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in of {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("call_{hex}")
}

/// The last line: what was counted, and why the model stopped.
fn end(line: Line) -> Result<Answer, StreamFault> {
    let reason = line.done_reason.unwrap_or_else(|| "stop".to_owned());
    let stop_reason = match reason.as_str() {
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        "load" | "unload" => {
            let message =
                format!("the model was {reason}ed and asked nothing: the request had no messages");
            return Err(StreamFault::Refused(Refusal { status: None, code: reason, message }));
        }
        _ => StopReason::Other,
    };
    Ok(Answer {
        usage: usage(line.prompt_eval_count, line.prompt_eval_cached_count, line.eval_count),
        stop_reason,
        raw_stop_reason: reason,
        model: line.model,
        ..Answer::default()
    })
}
