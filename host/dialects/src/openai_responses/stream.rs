//! Decodes the events of a streamed answer.

mod blocks;

use std::collections::BTreeMap;

use serde_json::Value;

use self::blocks::OutputItem;
use super::errors::{failure, inner_error, refusal};
use super::usage::read_usage;
use crate::dialect::{Decoder, ModelResponse, StreamError, StreamFrame};
use crate::json::{text, update_text};
use crate::message::StopReason;
use crate::request::StreamPart;

/// Decodes one answer. Its last event is `response.completed` or `response.incomplete`; this dialect
/// has no `[DONE]`.
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
        if self.has_ended {
            return Ok(());
        }
        let Some(event) = frame.json()? else { return Ok(()) };
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
            // Other `done` events repeat the item, and progress of the server's tools is not used.
            _ => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError> {
        let ResponsesDecoder { items, mut response, has_ended } = *self;
        if !has_ended {
            return Err(StreamError::Cut);
        }
        let is_cut_short = response.stop_reason != StopReason::Stop;
        let blocks = items.into_values().filter_map(|item| item.into_content(is_cut_short));
        response.content = blocks.collect();
        if response.has_tool_calls() && response.stop_reason == StopReason::Stop {
            response.stop_reason = StopReason::ToolUse;
        }
        Ok(response)
    }
}

impl ResponsesDecoder {
    /// The item of an event.
    fn item_at(&mut self, event: &Value) -> &mut OutputItem {
        // Some compatible servers send no index; their deltas belong to the newest item.
        let newest = self.items.last_key_value().map_or(0, |(index, _)| *index);
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or(newest);
        self.items.entry(index).or_default()
    }

    fn read_response_head(&mut self, event: &Value) {
        let Some(response) = event.get("response") else { return };
        update_text(&mut self.response.response_id, text(response, "id"));
        update_text(&mut self.response.model, text(response, "model"));
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
        let Some(whole) = event.get("item") else { return };
        let item = self.item_at(event);
        item.item = whole.clone();
        item.is_done = true;
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
        let details = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let is_incomplete = text(event, "type") == "response.incomplete";
        let reason = details.unwrap_or(if is_incomplete { "incomplete" } else { "completed" });
        reason.clone_into(&mut self.response.raw_stop_reason);
        self.response.stop_reason = stop_reason(reason);
        // Some compatible servers send items only here.
        let output = response.get("output").and_then(Value::as_array);
        for (index, whole) in (0..).zip(output.into_iter().flatten()) {
            let item = self.items.entry(index).or_default();
            if !item.is_done {
                *item = OutputItem { item: whole.clone(), is_done: true, ..OutputItem::default() };
            }
        }
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "completed" => StopReason::Stop,
        "content_filter" => StopReason::Error,
        // Any other reason for an incomplete answer is a limit.
        _ => StopReason::Length,
    }
}
