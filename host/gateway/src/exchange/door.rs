//! What is behind a door: who speaks there, and whom a model is asked of.

use std::borrow::Cow;

use super::Door;
use ctxhost_dialects::inbound::{Body, InboundDialect};
use ctxhost_dialects::{
    AnthropicInbound, GeminiInbound, OpenAiChatInbound, OpenAiResponsesInbound,
};

impl Door {
    /// The dialect of those who come through it.
    pub fn speech(&self) -> &'static dyn InboundDialect {
        match self {
            Door::Messages | Door::CountTokens => &AnthropicInbound,
            Door::ChatCompletions => &OpenAiChatInbound,
            Door::Responses | Door::ResponsesCompact => &OpenAiResponsesInbound,
            Door::Generate { .. } | Door::GenerateCount { .. } => &GeminiInbound,
        }
    }

    /// Whose models are asked there, as windows are looked up: `provider/model`.
    pub fn provider(&self) -> &'static str {
        match self {
            Door::Messages | Door::CountTokens => "anthropic",
            Door::ChatCompletions | Door::Responses | Door::ResponsesCompact => "openai",
            Door::Generate { .. } | Door::GenerateCount { .. } => "google",
        }
    }

    /// Whether the model is only asked how large a request would be.
    pub fn only_counts(&self) -> bool {
        matches!(self, Door::CountTokens | Door::GenerateCount { .. })
    }

    /// The model that is asked.
    pub(super) fn model<'a>(&'a self, body: &'a Body<'_>) -> Cow<'a, str> {
        match self {
            Door::Generate { model, .. } | Door::GenerateCount { model } => Cow::Borrowed(model),
            _ => Cow::Borrowed(&body.model),
        }
    }

    /// Whether the answer is streamed.
    pub(super) fn is_stream(&self, body: &Body<'_>) -> bool {
        match self {
            Door::Generate { is_stream, .. } => *is_stream,
            _ => body.is_stream,
        }
    }
}
