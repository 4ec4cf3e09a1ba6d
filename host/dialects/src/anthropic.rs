//! Anthropic's Messages API: requests by the rules A-1 to A-22, and streams.
//!
//! ```text
//!  messages ─► history (A-1 to A-11, A-14 to A-16, A-19, A-20) ─┐
//!  tools ────► tools   (A-9, A-10, A-18) ───────────────────────┼─► cache (A-12) ─► body
//!  level ────► thinking (A-13, A-14) ───────────────────────────┘
//! ```
//!
//! Not enforced here: A-2 and A-22 (the caller knows the window and the model's limit) and the
//! pixels of A-19.

pub(crate) mod errors;
mod inbound;
mod request;
mod stream;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

pub use inbound::AnthropicInbound;

use serde_json::Value;

use crate::dialect::{Decoder, Dialect};
use crate::request::ModelRequest;

const API: &str = "anthropic-messages";
const VERSION: &str = "2023-06-01";
const CONTEXT_EDITING_BETA: &str = "context-management-2025-06-27";
const THINKING_BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Anthropic's dialect, which other providers speak as well.
#[derive(Clone, Debug, Default)]
pub struct Anthropic {
    /// Lets the provider clear old tool results; off by default, since the engine does that.
    pub context_editing: Option<ContextEditing>,
    /// Whether cached prompts live for an hour and not for five minutes. Writing them then costs 2
    /// times the input price and not 1.25 times.
    pub one_hour_cache: bool,
    /// Whether the provider drops thinking whose prefix has changed, instead of refusing the
    /// request (A-21). Off by default: only the newest models support it.
    pub drop_unbound_thinking: bool,
}

/// When the provider clears old tool results (`clear_tool_uses_20250919`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextEditing {
    /// Prompt size from which it clears, in provider tokens.
    pub trigger_tokens: u64,
    /// Number of newest calls that are kept.
    pub keep_calls: u64,
    /// The least that one clearing removes, since each one invalidates the cache; 0 for any amount.
    pub clear_at_least_tokens: u64,
    /// Tools whose results are never cleared.
    pub exclude_tools: Vec<String>,
    /// Whether the arguments of calls are cleared, too.
    pub clear_arguments: bool,
}

impl Default for ContextEditing {
    /// The provider's defaults.
    fn default() -> Self {
        ContextEditing {
            trigger_tokens: 100_000,
            keep_calls: 3,
            clear_at_least_tokens: 0,
            exclude_tools: Vec::new(),
            clear_arguments: false,
        }
    }
}

impl Dialect for Anthropic {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, _request: &ModelRequest) -> String {
        "/v1/messages".to_owned()
    }

    fn window_query(&self, model: &str) -> Option<(String, Option<Value>)> {
        Some((format!("/v1/models/{model}"), None))
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self, _request: &ModelRequest) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        let betas: Vec<_> = self.betas().collect();
        if !betas.is_empty() {
            headers.push(("anthropic-beta", betas.join(",")));
        }
        headers
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        request::request_body(self, request)
    }

    fn new_decoder(&self) -> Box<dyn Decoder> {
        Box::new(stream::AnthropicDecoder::default())
    }

    fn count_request(&self, request: &ModelRequest) -> Option<(String, Value)> {
        Some((
            "/v1/messages/count_tokens".to_owned(),
            // This endpoint refuses `max_tokens`, `stream` and `temperature`.
            Value::Object(request::prompt_fields(self, request)),
        ))
    }

    fn parse_count(&self, answer: &Value) -> Option<u64> {
        answer.get("input_tokens")?.as_u64()
    }
}

impl Anthropic {
    fn betas(&self) -> impl Iterator<Item = &'static str> {
        let editing = self.context_editing.as_ref().map(|_| CONTEXT_EDITING_BETA);
        let binding = self.drop_unbound_thinking.then_some(THINKING_BINDING_BETA);
        editing.into_iter().chain(binding)
    }
}
