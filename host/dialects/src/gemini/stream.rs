//! Decodes Gemini's stream: each frame is a whole response with the next parts.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::refusal;
use super::usage::GeminiCounts;
use super::{API, GENERATED_ID_PREFIX};
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::json::{string, text, update_text};
use crate::message::{ChatBlock, StopReason, ToolCallBlock, arguments_object};
use crate::request::StreamPart;

/// Decodes one answer.
#[derive(Default)]
pub(super) struct GeminiDecoder {
    answer: ModelResponse,
    counts: GeminiCounts,
    /// A hash of all frames so far, from which ids are derived for calls without one.
    frames_hash: Sha256,
}

impl Decoder for GeminiDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let Some(data) = frame.json()? else { return Ok(()) };
        self.frames_hash.update(frame.data);
        match data {
            // Errors may come as a list, and so may the streams of proxies.
            Value::Array(responses) => {
                responses.iter().try_for_each(|response| self.read_response(response, parts))
            }
            response => self.read_response(&response, parts),
        }
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        let mut answer = self.answer;
        // Gemini has no end marker: only the finish reason shows that the answer is complete.
        if answer.raw_stop_reason.is_empty() {
            return Err(StreamError::Cut);
        }
        answer.stop_reason = stop_reason(&answer.raw_stop_reason, answer.has_tool_calls());
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
        if let Some(refusal) = refusal(response) {
            return Err(StreamError::Refused(refusal));
        }
        if let Some(usage) = response.get("usageMetadata") {
            self.counts.update(usage);
        }
        update_text(&mut self.answer.response_id, text(response, "responseId"));
        update_text(&mut self.answer.model, text(response, "modelVersion"));
        let Some(candidate) = response.pointer("/candidates/0") else { return Ok(()) };
        let new_parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in new_parts.into_iter().flatten() {
            self.read_part(part, parts);
        }
        let reason = text(candidate, "finishReason");
        if reason != "FINISH_REASON_UNSPECIFIED" {
            update_text(&mut self.answer.raw_stop_reason, reason);
        }
        Ok(())
    }

    fn read_part(&mut self, part: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let signature = Some(string(part, "thoughtSignature")).filter(|text| !text.is_empty());
        if let Some(call) = part.get("functionCall") {
            parts(StreamPart::ToolCall { name: text(call, "name") });
            let call = self.read_call(call, signature);
            self.answer.content.push(ChatBlock::ToolCall(call));
        } else if let Some(piece) = part.get("text").and_then(Value::as_str) {
            let is_thought = part.get("thought") == Some(&Value::Bool(true));
            self.append_text(piece, is_thought, signature, parts);
        } else if part.as_object().is_some_and(|fields| !fields.is_empty()) {
            let item = ChatBlock::ProviderItem { api: API.into(), item: part.clone() };
            self.answer.content.push(item);
        }
    }

    fn read_call(&self, call: &Value, thought_signature: Option<String>) -> ToolCallBlock {
        let id = match text(call, "id") {
            "" => self.derive_call_id(),
            id => id.to_owned(),
        };
        let arguments = arguments_object(call.get("args").unwrap_or(&Value::Null)).into();
        ToolCallBlock { id, name: string(call, "name"), arguments, thought_signature }
    }

    /// An id for a call without one: equal for equal streams, and unique over answers and blocks.
    fn derive_call_id(&self) -> String {
        let hash = self.frames_hash.clone().finalize();
        let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{GENERATED_ID_PREFIX}{hex}_{}", self.answer.content.len())
    }

    /// Appends text to the last block, or starts a block.
    fn append_text(
        &mut self,
        piece: &str,
        is_thought: bool,
        signature: Option<String>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) {
        if !piece.is_empty() {
            let part = if is_thought { StreamPart::Thinking } else { StreamPart::Text };
            parts(part(piece));
        }
        // A part with a signature is a block of its own (G-8).
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
            _ if is_thought => self.answer.content.push(ChatBlock::thinking(piece, signature)),
            _ => {
                let text = piece.to_owned();
                self.answer.content.push(ChatBlock::Text { text, text_signature: signature });
            }
        }
    }
}

fn stop_reason(raw: &str, has_calls: bool) -> StopReason {
    match raw {
        "STOP" if has_calls => StopReason::ToolUse,
        "STOP" => StopReason::Stop,
        "MAX_TOKENS" => StopReason::Length,
        // Safety, recitation, malformed calls and others end an answer without completing it.
        _ => StopReason::Error,
    }
}
