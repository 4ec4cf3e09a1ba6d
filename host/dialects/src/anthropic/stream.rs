//! Anthropic's stream, put together: blocks that begin, grow and end, and a usage that is cumulative.

mod block;

use serde_json::Value;

use super::errors::refusal;
use super::usage::read_usage;
use crate::dialect::{Answer, Decoder, Frame, StreamFault};
use crate::json::string;
use crate::message::StopReason;
use crate::request::StreamPart;
use block::Block;

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    answer: Answer,
    /// By the index that the provider gives them.
    blocks: Vec<(u64, Block)>,
    ended: bool,
}

impl Decoder for AnthropicDecoder {
    fn push(
        &mut self,
        frame: Frame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        // Some gateways end with OpenAI's word.
        if frame.data.trim().is_empty() || frame.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(frame.data)
            .map_err(|error| nonsense(format!("an event is no JSON: {error}")))?;
        match data.get("type").and_then(Value::as_str).unwrap_or(frame.event) {
            "message_start" => self.start(&data),
            "content_block_start" => self.open(&data, parts)?,
            "content_block_delta" => self.grow(&data, parts)?,
            "message_delta" => self.stop(&data),
            "message_stop" => self.ended = true,
            // Endpoints of others may leave the type out.
            _ if data.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(StreamFault::Refused(refusal(&data)));
            }
            // `ping`, `content_block_stop`, and what is yet to be invented.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, StreamFault> {
        if !self.ended {
            return Err(StreamFault::Cut);
        }
        let mut answer = self.answer;
        let last = self.blocks.len().saturating_sub(1);
        for (place, (_, block)) in self.blocks.into_iter().enumerate() {
            // A limit may fall into the arguments of a call: such a call was never made.
            let may_be_cut = place == last && answer.stop_reason == StopReason::Length;
            if !(may_be_cut && block.is_half_a_call()) {
                answer.content.extend(block.finish().map_err(nonsense)?);
            }
        }
        Ok(answer)
    }
}

impl AnthropicDecoder {
    fn start(&mut self, data: &Value) {
        let Some(message) = data.get("message") else { return };
        self.answer.response_id = string(message, "id");
        self.answer.model = string(message, "model");
        self.count(message);
    }

    fn open(
        &mut self,
        data: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        let begun = data.get("content_block").filter(|block| block.is_object());
        let block = Block::open(begun.ok_or_else(|| nonsense("a block begins as nothing"))?);
        block.tell(parts);
        self.blocks.push((index(data)?, block));
        Ok(())
    }

    fn grow(
        &mut self,
        data: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        let index = index(data)?;
        let block = self.blocks.iter_mut().rev().find(|(given, _)| *given == index);
        let (_, block) =
            block.ok_or_else(|| nonsense(format!("block {index} grows before it begins")))?;
        if let Some(delta) = data.get("delta") {
            block.grow(delta, parts);
        }
        Ok(())
    }

    fn count(&mut self, event: &Value) {
        if let Some(said) = event.get("usage") {
            read_usage(said, &mut self.answer.usage);
        }
    }

    fn stop(&mut self, data: &Value) {
        self.count(data);
        let reason = data.get("delta").map(|delta| string(delta, "stop_reason"));
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.answer.stop_reason = stop_reason(&reason);
            self.answer.raw_stop_reason = reason;
        }
    }
}

fn stop_reason(raw: &str) -> StopReason {
    match raw {
        "end_turn" | "stop_sequence" | "pause_turn" | "compaction" => StopReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "tool_use" => StopReason::ToolUse,
        "refusal" => StopReason::Error,
        _ => StopReason::Other,
    }
}

fn index(data: &Value) -> Result<u64, StreamFault> {
    let index = data.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| nonsense("an event of a block does not say which"))
}

fn nonsense(reason: impl Into<String>) -> StreamFault {
    StreamFault::Nonsense { reason: reason.into() }
}
