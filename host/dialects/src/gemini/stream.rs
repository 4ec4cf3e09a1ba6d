//! Gemini's stream, put together: each frame is a whole response with the next parts in it.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::errors::refusal;
use super::usage::Counts;
use super::{API, OWN_ID};
use crate::dialect::{Answer, Decoder, Frame, StreamFault};
use crate::json::text;
use crate::message::{Content, StopReason, ToolCall, as_object};
use crate::request::StreamPart;

/// Reads one answer.
#[derive(Default)]
pub(super) struct GeminiDecoder {
    answer: Answer,
    counts: Counts,
    /// Of all that has come: what ids are made of where the model gives none.
    seen: Sha256,
}

impl Decoder for GeminiDecoder {
    fn push(
        &mut self,
        frame: Frame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        if frame.data.trim().is_empty() || frame.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(frame.data).map_err(|error| {
            StreamFault::Nonsense { reason: format!("a response is no JSON: {error}") }
        })?;
        self.seen.update(frame.data);
        // Errors, and streams of gateways, may come as a list.
        match data {
            Value::Array(responses) => {
                responses.iter().try_for_each(|response| self.take(response, parts))
            }
            response => self.take(&response, parts),
        }
    }

    fn finish(self: Box<Self>) -> Result<Answer, StreamFault> {
        let mut answer = self.answer;
        if answer.raw_stop_reason.is_empty() {
            return Err(StreamFault::Cut);
        }
        let calls = answer.content.iter().any(|block| matches!(block, Content::ToolCall(_)));
        answer.stop_reason = stop_reason(&answer.raw_stop_reason, calls);
        answer.usage = self.counts.usage();
        Ok(answer)
    }
}

impl GeminiDecoder {
    fn take(
        &mut self,
        response: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        refusal(response).map_or(Ok(()), |refusal| Err(StreamFault::Refused(refusal)))?;
        self.counts.take(response.get("usageMetadata"));
        set(&mut self.answer.response_id, text(response, "responseId"));
        set(&mut self.answer.model, text(response, "modelVersion"));
        let Some(candidate) = response.pointer("/candidates/0") else { return Ok(()) };
        let pieces = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in pieces.into_iter().flatten() {
            self.part(part, parts);
        }
        let reason = text(candidate, "finishReason");
        if reason != "FINISH_REASON_UNSPECIFIED" {
            set(&mut self.answer.raw_stop_reason, reason);
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let signature = Some(text(part, "thoughtSignature")).filter(|text| !text.is_empty());
        let signature = signature.map(str::to_owned);
        if let Some(call) = part.get("functionCall") {
            parts(StreamPart::ToolCall { name: text(call, "name") });
            let call = self.call(call, signature);
            self.answer.content.push(Content::ToolCall(call));
        } else if let Some(piece) = part.get("text").and_then(Value::as_str) {
            let is_thought = part.get("thought") == Some(&Value::Bool(true));
            self.text(piece, is_thought, signature, parts);
        } else if part.as_object().is_some_and(|fields| !fields.is_empty()) {
            let item = Content::ProviderItem { api: API.into(), item: part.clone() };
            self.answer.content.push(item);
        }
    }

    fn call(&self, call: &Value, thought_signature: Option<String>) -> ToolCall {
        let id = match text(call, "id") {
            "" => self.own_id(),
            id => id.to_owned(),
        };
        let arguments = Value::Object(as_object(call.get("args").unwrap_or(&Value::Null)));
        ToolCall { id, name: text(call, "name").to_owned(), arguments, thought_signature }
    }

    /// An id for a call without one: the same for the same stream, another in every other answer, and
    /// another for every block of it.
    fn own_id(&self) -> String {
        let hash = self.seen.clone().finalize();
        let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{OWN_ID}{hex}_{}", self.answer.content.len())
    }

    /// More text, of an answer or of thoughts. A part with a signature is a block of its own (G-8).
    fn text(
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
            Some(Content::Text { text, text_signature: None })
                if !is_thought && signature.is_none() =>
            {
                text.push_str(piece);
            }
            Some(Content::Thinking { thinking, thinking_signature: None, .. })
                if is_thought && signature.is_none() =>
            {
                thinking.push_str(piece);
            }
            _ if piece.is_empty() && signature.is_none() => {}
            _ => self.answer.content.push(block(piece, is_thought, signature)),
        }
    }
}

fn block(piece: &str, is_thought: bool, signature: Option<String>) -> Content {
    let text = piece.to_owned();
    if is_thought {
        Content::Thinking { thinking: text, thinking_signature: signature, redacted: false }
    } else {
        Content::Text { text, text_signature: signature }
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
