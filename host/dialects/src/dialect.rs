//! The traits of a wire format: how a provider takes requests and streams answers.

use serde_json::Value;

use crate::failure::ProviderRefusal;
use crate::message::{ChatBlock, ChatMessage, StopReason, TokenUsage, tool_calls};
use crate::request::{ModelRequest, StreamPart};

/// A wire format. It knows no socket, no clock and no key; the HTTP client around it is the same
/// for all.
pub trait Dialect: Send + Sync + std::fmt::Debug {
    /// The name in sessions and in the config, as in Pi: `anthropic-messages`.
    fn api(&self) -> &'static str;

    /// The path of a request below the base URL, such as `/v1/messages`.
    fn path(&self, request: &ModelRequest) -> String;

    /// The header of the API key: its name and the prefix of the key.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    /// Headers beside the key.
    fn headers(&self, _request: &ModelRequest) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The body of a streaming request. It satisfies the numbered rules of the dialect.
    fn encode(&self, request: &ModelRequest) -> Value;

    /// How the answer is split into frames.
    fn framing(&self) -> FrameFormat {
        FrameFormat::Sse
    }

    /// A decoder for one answer.
    fn new_decoder(&self) -> Box<dyn Decoder>;

    /// Path and body of a request that counts the tokens of a prompt; `None` if the API cannot.
    fn count_request(&self, _request: &ModelRequest) -> Option<(String, Value)> {
        None
    }

    /// The prompt tokens in the response to [`count_request`](Self::count_request).
    fn parse_count(&self, _answer: &Value) -> Option<u64> {
        None
    }

    /// Path and POST body of a query for a model's window; `None` if the API has none.
    fn window_query(&self, _model: &str) -> Option<(String, Option<Value>)> {
        None
    }

    /// Path and body of a request that compacts a history; `None` if the API cannot.
    fn compact_request(&self, _request: &ModelRequest) -> Option<(String, Value)> {
        None
    }

    /// The compacted history in the response to [`compact_request`](Self::compact_request). It
    /// replaces the one that was sent. The caller sets provider, model and time.
    ///
    /// # Errors
    ///
    /// [`StreamError`] if the response holds no history.
    fn parse_compaction(&self, _answer: &Value) -> Result<Vec<ChatMessage>, StreamError> {
        // Only called for a response to `compact_request`, which is `None` here.
        Err(StreamError::invalid("this dialect has no compaction"))
    }
}

/// How a stream is split into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// Server-sent events.
    Sse,
    /// One JSON object per line.
    JsonLines,
}

/// One frame of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFrame<'a> {
    /// The event's name; empty without one.
    pub event: &'a str,
    /// The data: JSON, or `[DONE]`.
    pub data: &'a str,
}

impl StreamFrame<'_> {
    /// The data as JSON; `None` for a frame without data and for `[DONE]`.
    pub(crate) fn json(&self) -> Result<Option<Value>, StreamError> {
        match self.data.trim() {
            // OpenAI's end marker. Some proxies send it in every dialect.
            "" | "[DONE]" => Ok(None),
            data => serde_json::from_str(data).map(Some).map_err(|error| {
                StreamError::invalid(format!("a frame of the stream is not JSON: {error}"))
            }),
        }
    }
}

/// Assembles an answer from its frames.
pub trait Decoder: Send {
    /// Reads the next frame and passes its new parts to `parts`.
    ///
    /// # Errors
    ///
    /// [`StreamError`]; nothing may be pushed after it.
    fn push(
        &mut self,
        frame: StreamFrame<'_>,
        parts: &mut dyn FnMut(StreamPart<'_>),
    ) -> Result<(), StreamError>;

    /// Finishes at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`StreamError::Cut`] if the dialect's last frame is missing.
    fn finish(self: Box<Self>) -> Result<ModelResponse, StreamError>;
}

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    /// The blocks in order.
    pub content: Vec<ChatBlock>,
    /// Token counts of the provider; zeros without them.
    pub usage: TokenUsage,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// The provider's own stop reason.
    pub raw_stop_reason: String,
    /// The provider's id of the answer.
    pub response_id: String,
    /// The model that answered; empty if the provider does not name it.
    pub model: String,
}

impl ModelResponse {
    pub(crate) fn has_tool_calls(&self) -> bool {
        tool_calls(&self.content).next().is_some()
    }
}

/// Why a stream gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamError {
    /// The provider reported an error inside the stream.
    Refused(ProviderRefusal),
    /// A frame does not match the dialect.
    InvalidFrame {
        /// What is wrong with it.
        reason: String,
    },
    /// The stream ended before its last frame.
    Cut,
}

impl StreamError {
    pub(crate) fn invalid(reason: impl Into<String>) -> StreamError {
        StreamError::InvalidFrame { reason: reason.into() }
    }
}
