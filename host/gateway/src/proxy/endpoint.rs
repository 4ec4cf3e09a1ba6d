//! The API endpoints that the proxy shapes, and what each of them implies.

use std::borrow::Cow;

use ctxhost_dialects::inbound::{InboundDialect, InboundError, ParsedBody};
use ctxhost_dialects::{
    AnthropicInbound, DialectName, GeminiInbound, OllamaInbound, OpenAiChatInbound,
    OpenAiResponsesInbound,
};

/// An API endpoint whose requests an engine may shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The dialect of its requests and responses.
    pub dialect: DialectName,
    /// The dialect whose upstream serves it. Clouds serve Anthropic's dialect at addresses of their own.
    pub upstream: DialectName,
    /// What the provider is asked for.
    pub action: EndpointAction,
    /// What the path says of the model, where bodies have no such field.
    pub path_model: Option<PathModel>,
}

/// What an endpoint does with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAction {
    /// The model answers.
    Generate,
    /// Its tokens are counted.
    CountTokens,
    /// It is replaced by a summary.
    Compact,
}

/// The model that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathModel {
    /// The model.
    pub id: String,
    /// Whether the response is streamed.
    pub is_stream: bool,
}

impl Endpoint {
    /// An endpoint with the model in the body.
    pub fn new(dialect: DialectName, action: EndpointAction) -> Endpoint {
        Endpoint { dialect, upstream: dialect, action, path_model: None }
    }

    /// The endpoint of a dialect where the model answers.
    pub fn generate(dialect: DialectName) -> Endpoint {
        Endpoint::new(dialect, EndpointAction::Generate)
    }

    /// The same endpoint with the model in the path.
    pub(crate) fn with_path_model(self, id: impl Into<String>, is_stream: bool) -> Endpoint {
        Endpoint { path_model: Some(PathModel { id: id.into(), is_stream }), ..self }
    }

    /// The parser and renderer of its requests.
    pub fn inbound(&self) -> &'static dyn InboundDialect {
        match self.dialect {
            DialectName::AnthropicMessages => &AnthropicInbound,
            DialectName::OpenAiCompletions => &OpenAiChatInbound,
            DialectName::OpenAiResponses => &OpenAiResponsesInbound,
            DialectName::GoogleGenerativeAi => &GeminiInbound,
            DialectName::Ollama => &OllamaInbound,
        }
    }

    /// The default provider name for window lookups (`provider/model`).
    pub fn provider(&self) -> &'static str {
        match self.upstream {
            DialectName::AnthropicMessages => "anthropic",
            DialectName::OpenAiCompletions | DialectName::OpenAiResponses => "openai",
            DialectName::GoogleGenerativeAi => "google",
            DialectName::Ollama => "ollama",
        }
    }

    /// Whether it only counts tokens.
    pub fn is_token_count(&self) -> bool {
        self.action == EndpointAction::CountTokens
    }

    /// Whether the model generates a response, as opposed to counting or compacting.
    pub(crate) fn is_generation(&self) -> bool {
        self.action == EndpointAction::Generate
    }

    /// Parses a body. What the path says of the model replaces what the body says.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidRequest`].
    pub(super) fn parse_body<'a>(&'a self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let body = self.inbound().parse_body(json)?;
        let Some(PathModel { id, is_stream }) = &self.path_model else { return Ok(body) };
        Ok(ParsedBody { model: Cow::Borrowed(id), is_stream: *is_stream, ..body })
    }
}
