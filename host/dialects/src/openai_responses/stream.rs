//! The events of a streamed answer.

mod blocks;

use std::collections::BTreeMap;

use serde_json::Value;

use self::blocks::Slot;
use super::errors::{failure, inner_error, refusal};
use super::usage::read_usage;
use crate::dialect::{Answer, Decoder, Frame, StreamFault};
use crate::json::text;
use crate::message::{Content, StopReason};
use crate::request::StreamPart;

/// Puts an answer together. It is whole with `response.completed` or `response.incomplete`; a stream
/// that ends before is cut, because this dialect has no `[DONE]`.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    slots: BTreeMap<u64, Slot>,
    head: Answer,
    has_ended: bool,
}

impl Decoder for ResponsesDecoder {
    fn push(
        &mut self,
        frame: Frame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamFault> {
        let data = frame.data.trim();
        if self.has_ended || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|error| StreamFault::Nonsense {
            reason: format!("an event of the stream is no JSON: {error}"),
        })?;
        let name = event.get("type").and_then(Value::as_str).unwrap_or(frame.event);
        let delta = text(&event, "delta");
        match name {
            "response.created" | "response.in_progress" => self.hear_head(&event),
            "response.output_item.added" => self.begin(&event, parts),
            "response.output_item.done" => self.settle(&event),
            "response.output_text.delta" | "response.refusal.delta" => {
                self.slot(&event).text.push_str(delta);
                parts(StreamPart::Text(delta));
            }
            "response.function_call_arguments.delta" => {
                self.slot(&event).arguments.push_str(delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.think(&event, delta, parts);
            }
            "response.reasoning_summary_part.added" if !self.slot(&event).thinking.is_empty() => {
                self.think(&event, "\n\n", parts);
            }
            "response.completed" | "response.incomplete" => self.end(&event),
            "response.failed" | "response.cancelled" => {
                return Err(StreamFault::Refused(failure(&event, name)));
            }
            "error" => return Err(StreamFault::Refused(refusal(inner_error(&event)))),
            _ if event.get("error").is_some_and(Value::is_object) => {
                return Err(StreamFault::Refused(refusal(inner_error(&event))));
            }
            // Done events repeat what the item says, progress of the server's tools is not ours, and
            // what is new will come as an item as well.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, StreamFault> {
        let ResponsesDecoder { slots, mut head, has_ended } = *self;
        if !has_ended {
            return Err(StreamFault::Cut);
        }
        let is_cut_short = head.stop_reason != StopReason::Stop;
        let blocks = slots.into_values().filter_map(|slot| slot.into_content(is_cut_short));
        head.content = blocks.collect();
        let calls = head.content.iter().any(|block| matches!(block, Content::ToolCall(_)));
        if calls && head.stop_reason == StopReason::Stop {
            head.stop_reason = StopReason::ToolUse;
        }
        Ok(head)
    }
}

impl ResponsesDecoder {
    /// The item that an event is about; where a lesser server does not say, the newest.
    fn slot(&mut self, event: &Value) -> &mut Slot {
        let newest = self.slots.last_key_value().map_or(0, |(index, _)| *index);
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or(newest);
        self.slots.entry(index).or_default()
    }

    fn hear_head(&mut self, event: &Value) {
        let Some(response) = event.get("response") else { return };
        for (heard, field) in [(&mut self.head.response_id, "id"), (&mut self.head.model, "model")]
        {
            let said = text(response, field);
            if !said.is_empty() {
                said.clone_into(heard);
            }
        }
    }

    fn begin(&mut self, event: &Value, parts: &mut dyn FnMut(StreamPart<'_>)) {
        let Some(item) = event.get("item") else { return };
        if text(item, "type") == "function_call" {
            parts(StreamPart::ToolCall { name: text(item, "name") });
        }
        let index = event.get("output_index").and_then(Value::as_u64);
        let index = index.unwrap_or(self.slots.len() as u64);
        self.slots.insert(index, Slot { item: item.clone(), ..Slot::default() });
    }

    fn settle(&mut self, event: &Value) {
        let Some(item) = event.get("item") else { return };
        let slot = self.slot(event);
        slot.item = item.clone();
        slot.is_done = true;
    }

    fn think(&mut self, event: &Value, delta: &str, parts: &mut dyn FnMut(StreamPart<'_>)) {
        self.slot(event).thinking.push_str(delta);
        parts(StreamPart::Thinking(delta));
    }

    fn end(&mut self, event: &Value) {
        self.has_ended = true;
        self.hear_head(event);
        let Some(response) = event.get("response") else { return };
        self.head.usage = read_usage(response.get("usage").unwrap_or(&Value::Null));
        let incomplete = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let by_name = text(event, "type") == "response.incomplete";
        let unsaid = if by_name { "incomplete" } else { "completed" };
        let reason = incomplete.unwrap_or(unsaid);
        reason.clone_into(&mut self.head.raw_stop_reason);
        self.head.stop_reason = stop_reason(reason);
        let output = response.get("output").and_then(Value::as_array);
        for (index, item) in (0..).zip(output.into_iter().flatten()) {
            let slot = self.slots.entry(index).or_default();
            if !slot.is_done {
                *slot = Slot { item: item.clone(), is_done: true, ..Slot::default() };
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
