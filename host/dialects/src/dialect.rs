//! How one family of providers writes requests and streams answers. Pure: no socket, no clock, no key.

use serde_json::Value;

use crate::failure::ProviderRefusal;
use crate::message::{ChatBlock, ChatMessage, StopReason, TokenUsage};
use crate::request::{ModelRequest, StreamPart};

/// One dialect. The wire around it (sockets, keys, retries) is the same for all.
pub trait Dialect: Send + Sync + std::fmt::Debug {
    /// Its name in sessions and in the config, as Pi writes it: `anthropic-messages`.
    fn api(&self) -> &'static str;

    /// Where a request goes, below the base URL, such as `/v1/messages`.
    fn path(&self, request: &ModelRequest) -> String;

    /// The header that carries the key: its name and what stands before the key.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    /// Headers that every request has beside the key.
    fn headers(&self, _request: &ModelRequest) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The body of a streaming request. It keeps the numbered rules of the dialect.
    fn encode(&self, request: &ModelRequest) -> Value;

    /// How the answer is cut into frames.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// Reads one answer.
    fn new_decoder(&self) -> Box<dyn Decoder>;

    /// How the provider counts a request, where it can: path and body.
    fn count_request(&self, _request: &ModelRequest) -> Option<(String, Value)> {
        None
    }

    /// The prompt tokens in the provider's answer to [`count_request`](Self::count).
    fn parse_count(&self, _answer: &Value) -> Option<u64> {
        None
    }

    /// How the provider is asked for the window of a model, where it can be: path, and body of a POST.
    fn window_query(&self, _model: &str) -> Option<(String, Option<Value>)> {
        None
    }

    /// How the provider compacts a history by itself, where it can: path and body.
    fn compact_request(&self, _request: &ModelRequest) -> Option<(String, Value)> {
        None
    }

    /// The history in the provider's answer to [`compact_request`](Self::compact): it replaces the one that
    /// was sent. Whoever stores it fills in the provider, the model and the time.
    ///
    /// # Errors
    ///
    /// [`StreamError`], where the answer holds no history.
    fn parse_compaction(&self, _answer: &Value) -> Result<Vec<ChatMessage>, StreamError> {
        Err(StreamError::InvalidFrame { reason: "this dialect compacts nothing".to_owned() })
    }
}

/// How a stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON object a line.
    JsonLines,
}

/// One frame of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFrame<'a> {
    /// The name of the event; empty where the framing has none.
    pub event: &'a str,
    /// Its data: JSON, or `[DONE]`.
    pub data: &'a str,
}

/// Puts the frames of one answer together.
pub trait Decoder: Send {
    /// Takes the next frame; `parts` is told what is new in it.
    ///
    /// # Errors
    ///
    /// [`StreamError`]; nothing more is pushed then.
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError>;

    /// The stream has ended.
    ///
    /// # Errors
    ///
    /// [`StreamError::Cut`] where the dialect's last frame never came.
    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError>;
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    /// Its blocks in order.
    pub content: Vec<ChatBlock>,
    /// What the provider counted; zeros where it said nothing.
    pub usage: TokenUsage,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// The provider's own word for it.
    pub raw_stop_reason: String,
    /// The provider's id of the answer.
    pub response_id: String,
    /// The model that answered, where the provider says so.
    pub model: String,
}

/// Why a stream gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamError {
    /// The provider said that it failed, in the middle of a stream that began well.
    Refused(ProviderRefusal),
    /// A frame is not what the dialect says.
    InvalidFrame {
        /// What was wrong.
        reason: String,
    },
    /// The stream ended before its end.
    Cut,
}
