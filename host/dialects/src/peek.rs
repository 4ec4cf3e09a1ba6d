//! Classifies the first events of a streamed answer, in any dialect.

use serde::Deserialize;
use serde_json::value::RawValue;

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
    if let Some(reason) = event.stop_reason().filter(|reason| WINDOW_FULL_REASONS.contains(reason))
    {
        let message = "the model stopped because its context window was full".to_owned();
        return Peek::Refused(ProviderRefusal { status: None, code: reason.to_owned(), message });
    }
    let is_quiet = match (&event.choices, &event.content_block) {
        (Some(choices), _) => choices.iter().all(PeekChoice::has_no_content),
        (None, Some(block)) => matches!(block.kind.as_str(), "text" | "thinking"),
        (None, None) => START_EVENTS.contains(&kind),
    };
    // An unknown event may be content, which a retry would send twice.
    if is_quiet { Peek::NoContent } else { Peek::Content }
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
    delta: Option<serde_json::Value>,
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
    delta: serde_json::Map<String, serde_json::Value>,
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
    /// Whether the delta has no content beside its role.
    fn has_no_content(&self) -> bool {
        let is_empty = |value: &serde_json::Value| match value {
            serde_json::Value::Null => true,
            serde_json::Value::String(text) => text.is_empty(),
            serde_json::Value::Array(items) => items.is_empty(),
            _ => false,
        };
        let rest = self.delta.iter().filter(|(name, _)| *name != "role");
        self.finish_reason.is_none() && rest.into_iter().all(|(_, value)| is_empty(value))
    }
}
