//! What is behind a door: who speaks there, and whom a model is asked of.

use std::borrow::Cow;

use super::Endpoint;
use ctxhost_dialects::inbound::{InboundDialect, ParsedBody};
use ctxhost_dialects::{
    AnthropicInbound, GeminiInbound, OpenAiChatInbound, OpenAiResponsesInbound,
};

impl Endpoint {
    /// The dialect of those who come through it.
    pub fn inbound(&self) -> &'static dyn InboundDialect {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => &AnthropicInbound,
            Endpoint::ChatCompletions => &OpenAiChatInbound,
            Endpoint::Responses | Endpoint::ResponsesCompact => &OpenAiResponsesInbound,
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => &GeminiInbound,
        }
    }

    /// Whose models are asked there, as windows are looked up: `provider/model`.
    pub fn provider(&self) -> &'static str {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => "anthropic",
            Endpoint::ChatCompletions | Endpoint::Responses | Endpoint::ResponsesCompact => {
                "openai"
            }
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => "google",
        }
    }

    /// Whether the model is only asked how large a request would be.
    pub fn is_token_count(&self) -> bool {
        matches!(self, Endpoint::CountTokens | Endpoint::GenerateCountTokens { .. })
    }

    /// The model that is asked.
    pub(super) fn model<'a>(&'a self, body: &'a ParsedBody<'_>) -> Cow<'a, str> {
        match self {
            Endpoint::Generate { model, .. } | Endpoint::GenerateCountTokens { model } => {
                Cow::Borrowed(model)
            }
            _ => Cow::Borrowed(&body.model),
        }
    }

    /// Whether the answer is streamed.
    pub(super) fn is_stream(&self, body: &ParsedBody<'_>) -> bool {
        match self {
            Endpoint::Generate { is_stream, .. } => *is_stream,
            _ => body.is_stream,
        }
    }
}
