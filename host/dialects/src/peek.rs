//! Classifies the first events of a streamed answer, in any dialect.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::failure::{ProviderRefusal, parse_refusal};

/// What an event at the start of a stream holds.
#[derive(Debug, PartialEq)]
pub enum Peek {
    /// Only the start of an answer.
    NoContent,
    /// Content, or an unknown event.
    Content,
    /// A refusal.
    Refused(ProviderRefusal),
}

/// Classifies the data of an event.
pub fn peek(data: &[u8]) -> Peek {
    let Ok(event) = serde_json::from_slice::<PeekEvent<'_>>(data) else { return Peek::Content };
    let kind = event.kind.as_deref().unwrap_or_default();
    let has_error = event.error.is_some_and(|error| error.get() != "null");
    let is_failed = event.base_resp.as_ref().is_some_and(|base| base.status_code != 0);
    if ERROR_EVENTS.contains(&kind) || has_error || is_failed {
        return Peek::Refused(parse_refusal(None, &String::from_utf8_lossy(data)));
    }
    let choices = event.choices.as_deref().unwrap_or_default();
    if choices.iter().all(PeekChoice::has_no_content)
        && let Some(refusal) = event.stop_reason().and_then(window_full)
    {
        return Peek::Refused(refusal);
    }
    let is_quiet = match (&event.choices, &event.content_block) {
        (Some(choices), _) => choices.iter().all(PeekChoice::only_starts),
        (None, Some(block)) => matches!(block.kind.as_str(), "text" | "thinking"),
        (None, None) => START_EVENTS.contains(&kind),
    };
    // An unknown event may be content, which a retry would send twice.
    if is_quiet { Peek::NoContent } else { Peek::Content }
}

/// The refusal in a whole answer without content whose model stopped because its window was full; `None` for any other.
pub fn peek_answer(document: &Value) -> Option<ProviderRefusal> {
    let choice = document.pointer("/choices/0");
    let reason = document.get("stop_reason").or_else(|| choice?.get("finish_reason"));
    let refusal = window_full(reason?.as_str()?)?;
    let is_empty = match choice {
        Some(choice) => choice.get("message").and_then(Value::as_object).is_none_or(has_only_role),
        None => document.get("content").and_then(Value::as_array).is_none_or(|blocks| {
            blocks.iter().all(|block| block.get("text").and_then(Value::as_str) == Some(""))
        }),
    };
    is_empty.then_some(refusal)
}

/// The refusal that a stop reason stands for.
fn window_full(reason: &str) -> Option<ProviderRefusal> {
    let message = "the model's context window ran out of room before its answer".to_owned();
    let code = reason.to_owned();
    WINDOW_FULL_REASONS.contains(&reason).then_some(ProviderRefusal { status: None, code, message })
}

/// Whether a message has no field with content beside its role.
fn has_only_role(message: &Map<String, Value>) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let rest = message.iter().filter(|(name, _)| *name != "role");
    rest.into_iter().all(|(_, value)| is_empty(value))
}

/// The fields of an event that matter, in any dialect.
#[derive(Deserialize)]
struct PeekEvent<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// MiniMax's error object; code 0 is success.
    #[serde(default)]
    base_resp: Option<BaseResp>,
    #[serde(default)]
    choices: Option<Vec<PeekChoice>>,
    #[serde(default)]
    content_block: Option<PeekBlock>,
    #[serde(default)]
    delta: Option<Value>,
}

#[derive(Deserialize)]
struct BaseResp {
    #[serde(default)]
    status_code: i64,
}

/// The block of Anthropic's `content_block_start`.
#[derive(Deserialize)]
struct PeekBlock {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct PeekChoice {
    #[serde(default)]
    delta: Map<String, Value>,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// Events that only start an answer.
const START_EVENTS: [&str; 8] = [
    "message_start",
    "content_block_stop",
    "ping",
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
];

/// Stop reasons of a model whose window was full before its first token.
const WINDOW_FULL_REASONS: [&str; 2] = ["model_context_window_exceeded", "model_length"];

/// Error events.
const ERROR_EVENTS: [&str; 3] = ["error", "response.failed", "response.error"];

impl PeekEvent<'_> {
    fn stop_reason(&self) -> Option<&str> {
        let of_delta = || self.delta.as_ref()?.get("stop_reason")?.as_str();
        let mut choices = self.choices.iter().flatten();
        of_delta().or_else(|| choices.find_map(|choice| choice.finish_reason.as_deref()))
    }
}

impl PeekChoice {
    /// Whether the delta has no content.
    fn has_no_content(&self) -> bool {
        has_only_role(&self.delta)
    }

    /// Whether the answer has neither content nor an end.
    fn only_starts(&self) -> bool {
        self.finish_reason.is_none() && self.has_no_content()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::{Classifier, FailureReason};

    /// Whether these are refused as too large: the answer as one document, and the event of a stream.
    fn is_overflow(document: &Value, event: &Value) -> [bool; 2] {
        let is_overflow = |refusal: &ProviderRefusal| {
            let classified = Classifier::for_phrases(&[]).unwrap().classify(refusal);
            classified.reason == FailureReason::ContextOverflow
        };
        let streamed = match peek(event.to_string().as_bytes()) {
            Peek::Refused(refusal) => is_overflow(&refusal),
            _ => false,
        };
        [peek_answer(document).as_ref().is_some_and(is_overflow), streamed]
    }

    fn chat(reason: &str, message: Value) -> [bool; 2] {
        let choice = |field: &str| {
            let choice = json!({"index": 0, field: message, "finish_reason": reason});
            json!({"id": "c", "choices": [choice]})
        };
        is_overflow(&choice("message"), &choice("delta"))
    }

    #[test]
    fn a_full_window_is_the_same_in_a_stream_and_in_a_document() {
        for reason in WINDOW_FULL_REASONS {
            for content in [json!(""), Value::Null] {
                let message = json!({"role": "assistant", "content": content, "tool_calls": []});
                assert_eq!(chat(reason, message), [true; 2], "{reason}");
            }
            for (field, value) in [
                ("content", json!("so far")),
                ("reasoning_content", json!("so far")),
                ("tool_calls", json!([{"id": "c"}])),
            ] {
                let message = json!({"role": "assistant", "content": null, field: value});
                assert_eq!(chat(reason, message), [false; 2], "{reason} {field}");
            }
        }
        assert_eq!(chat("stop", json!({"role": "assistant", "content": ""})), [false; 2]);
        assert_eq!(chat("length", json!({"role": "assistant", "content": ""})), [false; 2]);
    }

    #[test]
    fn anthropic_s_full_window_is_the_same_in_a_stream_and_in_a_document() {
        let reason = "model_context_window_exceeded";
        let event = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
        let of = |content: Value| {
            let document = json!({"type": "message", "content": content, "stop_reason": reason});
            is_overflow(&document, &event)
        };
        assert_eq!(of(json!([])), [true; 2]);
        assert_eq!(of(json!([{"type": "text", "text": ""}])), [true; 2]);
        // In a stream the content would have come before.
        assert_eq!(of(json!([{"type": "text", "text": "so far"}])), [false, true]);
        assert_eq!(of(json!([{"type": "tool_use", "id": "t", "input": {}}])), [false, true]);
    }
}
