//! The events of a streamed answer.

mod blocks;

use std::collections::BTreeMap;

use serde_json::Value;

use self::blocks::OutputItem;
use super::errors::{failure, inner_error, refusal};
use super::usage::read_usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::json::text;
use crate::message::{ChatBlock, StopReason};
use crate::request::StreamPart;

/// Puts an answer together. It is whole with `response.completed` or `response.incomplete`; a stream
/// that ends before is cut, because this dialect has no `[DONE]`.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: BTreeMap<u64, OutputItem>,
    response: ModelResponse,
    has_ended: bool,
}

impl Decoder for ResponsesDecoder {
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError> {
        let data = frame.data.trim();
        if self.has_ended || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event: Value =
            serde_json::from_str(data).map_err(|error| StreamError::InvalidFrame {
                reason: format!("an event of the stream is no JSON: {error}"),
            })?;
        let name = event.get("type").and_then(Value::as_str).unwrap_or(frame.event);
        let delta = text(&event, "delta");
        match name {
            "response.created" | "response.in_progress" => self.read_response_head(&event),
            "response.output_item.added" => self.start_item(&event, parts),
            "response.output_item.done" => self.complete_item(&event),
            "response.output_text.delta" | "response.refusal.delta" => {
                self.item_at(&event).text.push_str(delta);
                parts(StreamPart::Text(delta));
            }
            "response.function_call_arguments.delta" => {
                self.item_at(&event).arguments.push_str(delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.append_thinking(&event, delta, parts);
            }
            "response.reasoning_summary_part.added"
                if !self.item_at(&event).thinking.is_empty() =>
            {
                self.append_thinking(&event, "\n\n", parts);
            }
            "response.completed" | "response.incomplete" => self.finish_response(&event),
            "response.failed" | "response.cancelled" => {
                return Err(StreamError::Refused(failure(&event, name)));
            }
            "error" => return Err(StreamError::Refused(refusal(inner_error(&event)))),
            _ if event.get("error").is_some_and(Value::is_object) => {
                return Err(StreamError::Refused(refusal(inner_error(&event))));
            }
            // Done events repeat what the item says, progress of the server's tools is not ours, and
            // what is new will come as an item as well.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        let ResponsesDecoder { items: slots, response: mut head, has_ended } = *self;
        if !has_ended {
            return Err(StreamError::Cut);
        }
        let is_cut_short = head.stop_reason != StopReason::Stop;
        let blocks = slots.into_values().filter_map(|slot| slot.into_content(is_cut_short));
        head.content = blocks.collect();
        let calls = head.content.iter().any(|block| matches!(block, ChatBlock::ToolCall(_)));
        if calls && head.stop_reason == StopReason::Stop {
            head.stop_reason = StopReason::ToolUse;
        }
        Ok(head)
    }
}

impl ResponsesDecoder {
    /// The item that an event is about; where a lesser server does not say, the newest.
    fn item_at(&mut self, event: &Value) -> &mut OutputItem {
        let newest = self.items.last_key_value().map_or(0, |(index, _)| *index);
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or(newest);
        self.items.entry(index).or_default()
    }

    fn read_response_head(&mut self, event: &Value) {
        let Some(response) = event.get("response") else { return };
        for (heard, field) in
            [(&mut self.response.response_id, "id"), (&mut self.response.model, "model")]
        {
            let said = text(response, field);
            if !said.is_empty() {
                said.clone_into(heard);
            }
        }
    }

    fn start_item(&mut self, event: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let Some(item) = event.get("item") else { return };
        if text(item, "type") == "function_call" {
            parts(StreamPart::ToolCall { name: text(item, "name") });
        }
        let index = event.get("output_index").and_then(Value::as_u64);
        let index = index.unwrap_or(self.items.len() as u64);
        self.items.insert(index, OutputItem { item: item.clone(), ..OutputItem::default() });
    }

    fn complete_item(&mut self, event: &Value) {
        let Some(item) = event.get("item") else { return };
        let slot = self.item_at(event);
        slot.item = item.clone();
        slot.is_done = true;
    }

    fn append_thinking(
        &mut self,
        event: &Value,
        delta: &str,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) {
        self.item_at(event).thinking.push_str(delta);
        parts(StreamPart::Thinking(delta));
    }

    fn finish_response(&mut self, event: &Value) {
        self.has_ended = true;
        self.read_response_head(event);
        let Some(response) = event.get("response") else { return };
        self.response.usage = read_usage(response.get("usage").unwrap_or(&Value::Null));
        let incomplete = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let by_name = text(event, "type") == "response.incomplete";
        let unsaid = if by_name { "incomplete" } else { "completed" };
        let reason = incomplete.unwrap_or(unsaid);
        reason.clone_into(&mut self.response.raw_stop_reason);
        self.response.stop_reason = stop_reason(reason);
        let output = response.get("output").and_then(Value::as_array);
        for (index, item) in (0..).zip(output.into_iter().flatten()) {
            let slot = self.items.entry(index).or_default();
            if !slot.is_done {
                *slot = OutputItem { item: item.clone(), is_done: true, ..OutputItem::default() };
            }
        }
    }
}

/// Whatever leaves an answer incomplete is a limit, unless it was forbidden.
fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "completed" => StopReason::Stop,
        "content_filter" => StopReason::Error,
        _ => StopReason::Length,
    }
}
