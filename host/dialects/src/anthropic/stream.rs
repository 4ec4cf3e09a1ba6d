//! Decodes Anthropic's stream: blocks that start, grow and stop, and cumulative token counts.

mod block;

use serde_json::Value;

use super::errors::refusal;
use super::usage::read_usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::json::string;
use crate::message::StopReason;
use crate::request::StreamPart;
use block::StreamBlock;

/// Decodes one answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    answer: ModelResponse,
    /// The blocks with the provider's index.
    blocks: Vec<(u64, StreamBlock)>,
    is_ended: bool,
}

impl Decoder for AnthropicDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let Some(data) = frame.json()? else { return Ok(()) };
        match data.get("type").and_then(Value::as_str).unwrap_or(frame.event) {
            "message_start" => self.start_message(&data),
            "content_block_start" => self.start_block(&data, parts)?,
            "content_block_delta" => self.append_delta(&data, parts)?,
            "message_delta" => self.stop_message(&data),
            "message_stop" => self.is_ended = true,
            // Compatible endpoints may omit the type of an error event.
            _ if data.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(StreamError::Refused(refusal(&data)));
            }
            // `ping`, `content_block_stop`, and events of newer versions.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        if !self.is_ended {
            return Err(StreamError::Cut);
        }
        let mut answer = self.answer;
        let last = self.blocks.len().saturating_sub(1);
        for (at, (_, block)) in self.blocks.into_iter().enumerate() {
            // The output limit may cut the arguments of the last call. Such a call is dropped.
            let may_be_cut = at == last && answer.stop_reason == StopReason::Length;
            if !(may_be_cut && block.is_incomplete_call()) {
                answer.content.extend(block.finish().map_err(StreamError::invalid)?);
            }
        }
        Ok(answer)
    }
}

impl AnthropicDecoder {
    fn start_message(&mut self, data: &Value) {
        let Some(message) = data.get("message") else { return };
        self.answer.response_id = string(message, "id");
        self.answer.model = string(message, "model");
        self.read_usage(message);
    }

    fn start_block(
        &mut self,
        data: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let start = data.get("content_block").filter(|block| block.is_object());
        let start =
            start.ok_or_else(|| StreamError::invalid("content_block_start has no block"))?;
        let block = StreamBlock::start(start);
        block.emit_start(parts);
        self.blocks.push((index_of(data)?, block));
        Ok(())
    }

    fn append_delta(
        &mut self,
        data: &Value,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let index = index_of(data)?;
        let block = self.blocks.iter_mut().rev().find(|(given, _)| *given == index);
        let (_, block) = block.ok_or_else(|| {
            StreamError::invalid(format!("a delta refers to block {index}, which has not started"))
        })?;
        if let Some(delta) = data.get("delta") {
            block.append(delta, parts);
        }
        Ok(())
    }

    fn read_usage(&mut self, event: &Value) {
        if let Some(usage) = event.get("usage") {
            read_usage(usage, &mut self.answer.usage);
        }
    }

    fn stop_message(&mut self, data: &Value) {
        self.read_usage(data);
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

fn index_of(data: &Value) -> Result<u64, StreamError> {
    let index = data.get("index").and_then(Value::as_u64);
    index.ok_or_else(|| StreamError::invalid("an event of a block has no index"))
}
