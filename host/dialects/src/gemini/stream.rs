//! Gemini's stream, put together: each frame is a whole response with the next parts in it.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::refusal;
use super::usage::GeminiCounts;
use super::{API, GENERATED_ID_PREFIX};
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::json::text;
use crate::message::{ChatBlock, StopReason, ToolCallBlock, arguments_object};
use crate::request::StreamPart;

/// Reads one answer.
#[derive(Default)]
pub(super) struct GeminiDecoder {
    answer: ModelResponse,
    counts: GeminiCounts,
    /// Of all that has come: what ids are made of where the model gives none.
    frames_hash: Sha256,
}

impl Decoder for GeminiDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        if frame.data.trim().is_empty() || frame.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(frame.data).map_err(|error| {
            StreamError::InvalidFrame { reason: format!("a response is no JSON: {error}") }
        })?;
        self.frames_hash.update(frame.data);
        // Errors, and streams of gateways, may come as a list.
        match data {
            Value::Array(responses) => {
                responses.iter().try_for_each(|response| self.read_response(response, parts))
            }
            response => self.read_response(&response, parts),
        }
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        let mut answer = self.answer;
        if answer.raw_stop_reason.is_empty() {
            return Err(StreamError::Cut);
        }
        let calls = answer.content.iter().any(|block| matches!(block, ChatBlock::ToolCall(_)));
        answer.stop_reason = stop_reason(&answer.raw_stop_reason, calls);
        answer.usage = self.counts.usage();
        Ok(answer)
    }
}

impl GeminiDecoder {
    fn read_response(
        &mut self,
        response: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        refusal(response).map_or(Ok(()), |refusal| Err(StreamError::Refused(refusal)))?;
        self.counts.update(response.get("usageMetadata"));
        set(&mut self.answer.response_id, text(response, "responseId"));
        set(&mut self.answer.model, text(response, "modelVersion"));
        let Some(candidate) = response.pointer("/candidates/0") else { return Ok(()) };
        let pieces = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in pieces.into_iter().flatten() {
            self.read_part(part, parts);
        }
        let reason = text(candidate, "finishReason");
        if reason != "FINISH_REASON_UNSPECIFIED" {
            set(&mut self.answer.raw_stop_reason, reason);
        }
        Ok(())
    }

    fn read_part(&mut self, part: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let signature = Some(text(part, "thoughtSignature")).filter(|text| !text.is_empty());
        let signature = signature.map(str::to_owned);
        if let Some(call) = part.get("functionCall") {
            parts(StreamPart::ToolCall { name: text(call, "name") });
            let call = self.call(call, signature);
            self.answer.content.push(ChatBlock::ToolCall(call));
        } else if let Some(piece) = part.get("text").and_then(Value::as_str) {
            let is_thought = part.get("thought") == Some(&Value::Bool(true));
            self.append_text(piece, is_thought, signature, parts);
        } else if part.as_object().is_some_and(|fields| !fields.is_empty()) {
            let item = ChatBlock::ProviderItem { api: API.into(), item: part.clone() };
            self.answer.content.push(item);
        }
    }

    fn call(&self, call: &Value, thought_signature: Option<String>) -> ToolCallBlock {
        let id = match text(call, "id") {
            "" => self.derive_call_id(),
            id => id.to_owned(),
        };
        let arguments = Value::Object(arguments_object(call.get("args").unwrap_or(&Value::Null)));
        ToolCallBlock { id, name: text(call, "name").to_owned(), arguments, thought_signature }
    }

    /// An id for a call without one: the same for the same stream, another in every other answer, and
    /// another for every block of it.
    fn derive_call_id(&self) -> String {
        let hash = self.frames_hash.clone().finalize();
        let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{GENERATED_ID_PREFIX}{hex}_{}", self.answer.content.len())
    }

    /// More text, of an answer or of thoughts. A part with a signature is a block of its own (G-8).
    fn append_text(
        &mut self,
        piece: &str,
        is_thought: bool,
        signature: Option<String>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) {
        if !piece.is_empty() {
            let of = if is_thought { StreamPart::Thinking } else { StreamPart::Text };
            parts(of(piece));
        }
        match self.answer.content.last_mut() {
            Some(ChatBlock::Text { text, text_signature: None })
                if !is_thought && signature.is_none() =>
            {
                text.push_str(piece);
            }
            Some(ChatBlock::Thinking { thinking, thinking_signature: None, .. })
                if is_thought && signature.is_none() =>
            {
                thinking.push_str(piece);
            }
            _ if piece.is_empty() && signature.is_none() => {}
            _ => self.answer.content.push(block(piece, is_thought, signature)),
        }
    }
}

fn block(piece: &str, is_thought: bool, signature: Option<String>) -> ChatBlock {
    let text = piece.to_owned();
    if is_thought {
        ChatBlock::Thinking { thinking: text, thinking_signature: signature, redacted: false }
    } else {
        ChatBlock::Text { text, text_signature: signature }
    }
}

fn stop_reason(raw: &str, calls: bool) -> StopReason {
    match raw {
        "STOP" if calls => StopReason::ToolUse,
        "STOP" => StopReason::Stop,
        "MAX_TOKENS" => StopReason::Length,
        // Safety, recitation, malformed calls, and what else ends an answer before it is one.
        _ => StopReason::Error,
    }
}

fn set(field: &mut String, said: &str) {
    if !said.is_empty() {
        said.clone_into(field);
    }
}
