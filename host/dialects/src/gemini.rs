//! Google's generateContent API: requests by the rules G-1 to G-12, and streams.
//!
//! ```text
//!  messages ─► history (G-1 to G-9, G-12) ─┐
//!  tools ────► schema  (G-10) ─────────────┼─► body
//!  level ────► thinking ───────────────────┘
//! ```
//!
//! Cached contents are not used, so G-11 never applies; the API caches prefixes by itself.

pub(crate) mod errors;
mod inbound;
mod request;
mod signatures;
mod stream;
pub(crate) mod usage;

#[cfg(test)]
mod tests;

pub use inbound::GeminiInbound;

use serde_json::{Map, Value, json};

use crate::dialect::{Decoder, Dialect};
use crate::request::ModelRequest;

const API: &str = "google-generative-ai";

/// The prefix of ids made up for calls without one. They are not sent to models that give none, so
/// that these see their history as they wrote it.
const GENERATED_ID_PREFIX: &str = "ctxhost_call_";

/// Google's dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl Dialect for Gemini {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, request: &ModelRequest) -> String {
        // Without `alt=sse` the stream is one JSON array.
        format!("/v1beta/models/{}:streamGenerateContent?alt=sse", path_name(&request.model))
    }

    fn window_query(&self, model: &str) -> Option<(String, Option<Value>)> {
        Some((format!("/v1beta/models/{}", path_name(model)), None))
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        request::request_body(request)
    }

    fn new_decoder(&self) -> Box<dyn Decoder> {
        Box::new(stream::GeminiDecoder::default())
    }

    fn count_request(&self, request: &ModelRequest) -> Option<(String, Value)> {
        let name = path_name(&request.model);
        let mut counted = Map::new();
        // The inner request has to repeat the model of the path.
        counted.insert("model".into(), format!("models/{name}").into());
        counted.extend(request::prompt_fields(request));
        let path = format!("/v1beta/models/{name}:countTokens");
        // Plain `contents` would be counted without system prompt and tools.
        Some((path, json!({ "generateContentRequest": counted })))
    }

    fn parse_count(&self, answer: &Value) -> Option<u64> {
        answer.get("totalTokens")?.as_u64()
    }
}

/// A field in either spelling: the API accepts camel case and snake case.
fn field<'a>(part: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    part.get(camel).or_else(|| part.get(snake))
}

/// The call that a part makes.
fn call_of(part: &Value) -> Option<&Value> {
    field(part, "functionCall", "function_call")
}

/// A model's name as paths write it.
fn path_name(model: &str) -> &str {
    // Google's model lists name models with the prefix, configs usually without.
    model.strip_prefix("models/").unwrap_or(model)
}

/// Whether a model requires signatures and ids with its calls, and accepts images in their results.
fn is_gemini_3(model: &str) -> bool {
    path_name(model).starts_with("gemini-3")
}
