//! The API endpoints that the proxy shapes, and what each of them implies.

use std::borrow::Cow;

use ctxhost_dialects::inbound::{InboundDialect, ParsedBody};
use ctxhost_dialects::{
    AnthropicInbound, DialectName, GeminiInbound, OllamaInbound, OpenAiChatInbound,
    OpenAiResponsesInbound,
};

/// An API endpoint whose requests an engine may shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/messages/count_tokens`.
    CountTokens,
    /// `POST /v1/chat/completions`.
    ChatCompletions,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/responses/compact`.
    ResponsesCompact,
    /// `POST /v1/responses/input_tokens`.
    ResponsesCountTokens,
    /// `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`; the model is part of the path.
    Generate {
        /// The model.
        model: String,
        /// Whether the response is streamed.
        is_stream: bool,
    },
    /// `POST /v1beta/models/{model}:countTokens`.
    GenerateCountTokens {
        /// The model.
        model: String,
    },
    /// `POST /api/chat`.
    OllamaChat,
}

impl Endpoint {
    /// The dialect of its requests and responses.
    pub fn dialect(&self) -> DialectName {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => DialectName::AnthropicMessages,
            Endpoint::ChatCompletions => DialectName::OpenAiCompletions,
            Endpoint::Responses | Endpoint::ResponsesCompact | Endpoint::ResponsesCountTokens => {
                DialectName::OpenAiResponses
            }
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => {
                DialectName::GoogleGenerativeAi
            }
            Endpoint::OllamaChat => DialectName::Ollama,
        }
    }

    /// The parser and renderer of its requests.
    pub fn inbound(&self) -> &'static dyn InboundDialect {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => &AnthropicInbound,
            Endpoint::ChatCompletions => &OpenAiChatInbound,
            Endpoint::Responses | Endpoint::ResponsesCompact | Endpoint::ResponsesCountTokens => {
                &OpenAiResponsesInbound
            }
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => &GeminiInbound,
            Endpoint::OllamaChat => &OllamaInbound,
        }
    }

    /// The default provider name for window lookups (`provider/model`).
    pub fn provider(&self) -> &'static str {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => "anthropic",
            Endpoint::ChatCompletions
            | Endpoint::Responses
            | Endpoint::ResponsesCompact
            | Endpoint::ResponsesCountTokens => "openai",
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => "google",
            Endpoint::OllamaChat => "ollama",
        }
    }

    /// Whether it only counts tokens.
    pub fn is_token_count(&self) -> bool {
        matches!(
            self,
            Endpoint::CountTokens
                | Endpoint::ResponsesCountTokens
                | Endpoint::GenerateCountTokens { .. }
        )
    }

    /// Whether the model generates a response, as opposed to counting or compacting.
    pub(crate) fn is_generation(&self) -> bool {
        matches!(
            self,
            Endpoint::Messages
                | Endpoint::ChatCompletions
                | Endpoint::Responses
                | Endpoint::Generate { .. }
                | Endpoint::OllamaChat
        )
    }

    /// The model: from the path if the endpoint has it there, else from the body.
    pub(super) fn model<'a>(&'a self, body: &'a ParsedBody<'_>) -> Cow<'a, str> {
        match self {
            Endpoint::Generate { model, .. } | Endpoint::GenerateCountTokens { model } => {
                Cow::Borrowed(model)
            }
            _ => Cow::Borrowed(&body.model),
        }
    }

    /// Whether the response is streamed.
    pub(super) fn is_stream(&self, body: &ParsedBody<'_>) -> bool {
        match self {
            Endpoint::Generate { is_stream, .. } => *is_stream,
            _ => body.is_stream,
        }
    }
}
