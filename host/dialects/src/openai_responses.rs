//! OpenAI's Responses API, used without state at the server.
//!
//! ```text
//!  reasoning item   ◄─► ChatBlock::Thinking, the item's JSON as its signature, as in Pi
//!  message          ◄─► ChatBlock::Text, id and phase as its signature, as in Pi
//!  function_call    ◄─► ChatBlock::ToolCall
//!  any other item   ◄─► ChatBlock::ProviderItem, unchanged: compactions, searches, new types
//! ```
//!
//! Of the server's items only reasoning and provider items are sent back with their ids: an item
//! with an id requires the reasoning before it (R-4), one without an id requires nothing.

mod compaction;
mod errors;
mod inbound;
mod request;
mod stream;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

pub use inbound::{OpenAiResponsesInbound, SUMMARY_MARK};

use serde_json::Value;

use crate::dialect::{Decoder, Dialect, StreamError};
use crate::message::ChatMessage;
use crate::request::ModelRequest;

/// The dialect's name in sessions.
const API: &str = "openai-responses";

/// The longest id of a call or an item (R-7).
const ID_MAX_CHARS: usize = 64;

/// The dialect. Its base URL ends in `/v1`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl Dialect for OpenAiResponses {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, _request: &ModelRequest) -> String {
        "/responses".to_owned()
    }

    fn window_query(&self, _model: &str) -> Option<(String, Option<Value>)> {
        Some(("/models".to_owned(), None))
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        request::request_body(request)
    }

    fn new_decoder(&self) -> Box<dyn Decoder> {
        Box::<stream::ResponsesDecoder>::default()
    }

    fn count_request(&self, request: &ModelRequest) -> Option<(String, Value)> {
        Some(("/responses/input_tokens".to_owned(), request::count_body(request)))
    }

    fn parse_count(&self, answer: &Value) -> Option<u64> {
        answer.get("input_tokens")?.as_u64()
    }

    fn compact_request(&self, request: &ModelRequest) -> Option<(String, Value)> {
        Some(compaction::compact_request(request))
    }

    fn parse_compaction(&self, answer: &Value) -> Result<Vec<ChatMessage>, StreamError> {
        compaction::parse_compaction(answer)
    }
}
