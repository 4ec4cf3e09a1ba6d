//! What the first events of an answer tell, in any dialect: that it begins, a part of it, or a refusal.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::{Refusal, refusal_of};

/// What one event tells.
#[derive(Debug, PartialEq)]
pub enum Peek {
    /// That an answer begins.
    NoContent,
    /// A part of the answer, or anything else that we do not know.
    Content,
    /// That there is none.
    Refused(Refusal),
}

/// What the data of an event at the beginning of a stream tells.
pub fn peek(data: &[u8]) -> Peek {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else { return Peek::Content };
    let kind = event.kind.as_deref().unwrap_or_default();
    let has_error = event.error.is_some_and(|error| error.get() != "null");
    let is_failed = event.base_resp.as_ref().is_some_and(|base| base.status_code != 0);
    if REFUSING.contains(&kind) || has_error || is_failed {
        return Peek::Refused(refusal_of(None, &String::from_utf8_lossy(data)));
    }
    if let Some(reason) = event.stop_reason().filter(|reason| FULL.contains(reason)) {
        let message = "the model stopped because its context window was full".to_owned();
        return Peek::Refused(Refusal { status: None, code: reason.to_owned(), message });
    }
    let is_quiet = match (&event.choices, &event.content_block) {
        (Some(choices), _) => choices.iter().all(Choice::is_quiet),
        (None, Some(block)) => matches!(block.kind.as_str(), "text" | "thinking"),
        (None, None) => QUIET.contains(&kind),
    };
    if is_quiet { Peek::NoContent } else { Peek::Content }
}

/// What matters of an event's data, in any dialect.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// MiniMax's, with a code of 0 where all is well.
    #[serde(default)]
    base_resp: Option<BaseResp>,
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    content_block: Option<Block>,
    #[serde(default)]
    delta: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct BaseResp {
    #[serde(default)]
    status_code: i64,
}

/// A block of Anthropic's, as it begins: without the words that will stand in it.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// Events that say no more than that an answer begins.
const QUIET: [&str; 8] = [
    "message_start",
    "content_block_stop",
    "ping",
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
];

/// What a model stops for before it has said anything, where the window is full.
const FULL: [&str; 2] = ["model_context_window_exceeded", "model_length"];

/// Events that say that there will be none.
const REFUSING: [&str; 3] = ["error", "response.failed", "response.error"];

impl Event<'_> {
    fn stop_reason(&self) -> Option<&str> {
        let of_delta = || self.delta.as_ref()?.get("stop_reason")?.as_str();
        let mut choices = self.choices.iter().flatten();
        of_delta().or_else(|| choices.find_map(|choice| choice.finish_reason.as_deref()))
    }
}

impl Choice {
    /// Whether it only tells whose answer begins.
    fn is_quiet(&self) -> bool {
        let says_nothing = |value: &serde_json::Value| match value {
            serde_json::Value::Null => true,
            serde_json::Value::String(text) => text.is_empty(),
            serde_json::Value::Array(items) => items.is_empty(),
            _ => false,
        };
        let rest = self.delta.iter().filter(|(name, _)| *name != "role");
        self.finish_reason.is_none() && rest.into_iter().all(|(_, value)| says_nothing(value))
    }
}
