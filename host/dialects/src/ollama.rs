//! Ollama's own dialect, the only one that names the window in the request.
//!
//! By default the server cuts a prompt that does not fit, without an error. The request forbids
//! that (`truncate: false`). Servers before late 2025 ignore the field; for those,
//! `ctxhost-provider` detects the cut from the token counts.

pub(crate) mod errors;
mod inbound;
mod request;
mod stream;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use inbound::OllamaInbound;

use crate::dialect::{Decoder, Dialect, FrameFormat};
use crate::request::ModelRequest;

/// The dialect's name in sessions.
const API: &str = "ollama";

/// The dialect. Its base URL has no path: `http://localhost:11434`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ollama;

impl Dialect for Ollama {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, _request: &ModelRequest) -> String {
        "/api/chat".to_owned()
    }

    fn window_query(&self, model: &str) -> Option<(String, Option<Value>)> {
        Some(("/api/show".to_owned(), Some(serde_json::json!({ "model": model }))))
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        request::request_body(request)
    }

    fn framing(&self) -> FrameFormat {
        FrameFormat::JsonLines
    }

    fn new_decoder(&self) -> Box<dyn Decoder> {
        Box::<stream::OllamaDecoder>::default()
    }
}
