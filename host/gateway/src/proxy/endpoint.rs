//! The API endpoints that the proxy shapes, and what each of them implies.

use std::borrow::Cow;

use ctxhost_dialects::inbound::{InboundDialect, InboundError, ParsedBody};
use ctxhost_dialects::{
    AnthropicInbound, DialectName, GeminiInbound, OllamaInbound, OpenAiChatInbound,
    OpenAiResponsesInbound,
};

/// What the ids of AWS's resources begin with.
pub(crate) const ARN_PREFIX: &str = "arn:";

/// An API endpoint whose requests an engine may shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The dialect of its requests and responses.
    pub dialect: DialectName,
    /// The dialect whose upstream serves it. Clouds serve Anthropic's dialect at addresses of their own.
    pub upstream: DialectName,
    /// What the provider is asked for.
    pub action: EndpointAction,
    /// What the path says of the model.
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
    /// Whether the response is streamed; `None` if that is in the body, where the model may be, too.
    pub is_stream: Option<bool>,
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
        Endpoint {
            path_model: Some(PathModel { id: id.into(), is_stream: Some(is_stream) }),
            ..self
        }
    }

    /// The same endpoint with the name of a deployment in the path. It is the model if the body names none.
    pub(crate) fn with_deployment(self, id: impl Into<String>) -> Endpoint {
        Endpoint { path_model: Some(PathModel { id: id.into(), is_stream: None }), ..self }
    }

    /// The model of a request whose body names `in_body`; empty if nothing names one.
    pub(crate) fn model<'a>(&'a self, in_body: Cow<'a, str>) -> Cow<'a, str> {
        match &self.path_model {
            Some(path) if path.is_stream.is_some() || in_body.is_empty() => Cow::Borrowed(&path.id),
            _ => in_body,
        }
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

    /// Parses a body. What the path says of the model and of streaming replaces what the body says.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidRequest`].
    pub(crate) fn parse_body<'a>(&'a self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let body = self.inbound().parse_body(json)?;
        let Some(path) = &self.path_model else { return Ok(body) };
        // The ARN of a profile does not say whose model it is; bodies for Claude do.
        if path.id.starts_with(ARN_PREFIX) && !json.contains("\"anthropic_version\"") {
            let reason = "it has no anthropic_version, and its path names no model".to_owned();
            return Err(InboundError::InvalidRequest { reason });
        }
        let is_stream = path.is_stream.unwrap_or(body.is_stream);
        Ok(ParsedBody { model: self.model(body.model), is_stream, ..body })
    }
}
