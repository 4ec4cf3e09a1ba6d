//! Google's generateContent: how it is written, rules G-1 to G-12, and how answers stream.
//!
//! ```text
//!  messages ─► history (G-1 to G-9, G-12) ─┐
//!  tools ────► schema  (G-10) ─────────────┼─► body
//!  level ────► thinking ───────────────────┘
//! ```
//!
//! Cached contents are not used, so that G-11 has nothing to forbid; prefixes are cached by themselves.

mod decoder;
mod history;
mod schema;
mod thinking;

#[cfg(test)]
mod tests;

pub(super) use decoder::read_usage;

use std::collections::HashSet;

use ctxhost_engine_api::ToolSpec;
use serde_json::{Map, Value, json};

use super::dialect::{Decoder, Dialect};
use super::plain::decimal;
use super::request::ModelRequest;
use super::round::{is_blank, tool_name};

const API: &str = "google-generative-ai";

/// What begins an id that this dialect made up for a call without one. Such ids are not sent to models
/// that gave none: their history looks as they wrote it.
const OWN_ID: &str = "ctxhost_call_";

/// Google's dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl Dialect for Gemini {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, request: &ModelRequest) -> String {
        format!("/v1beta/models/{}:streamGenerateContent?alt=sse", name(&request.model))
    }

    fn window_query(&self, model: &str) -> Option<(String, Option<Value>)> {
        Some((format!("/v1beta/models/{}", name(model)), None))
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        let mut body = prompt(request);
        let generation = generation(request);
        if !generation.is_empty() {
            body.insert("generationConfig".into(), generation.into());
        }
        Value::Object(body)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decoder::GeminiDecoder::default())
    }

    fn count(&self, request: &ModelRequest) -> Option<(String, Value)> {
        let name = name(&request.model);
        let mut counted = Map::new();
        counted.insert("model".into(), format!("models/{name}").into());
        counted.extend(prompt(request));
        let path = format!("/v1beta/models/{name}:countTokens");
        Some((path, json!({ "generateContentRequest": counted })))
    }

    fn counted(&self, answer: &Value) -> Option<u64> {
        answer.get("totalTokens")?.as_u64()
    }
}

/// The fields that count as prompt.
fn prompt(request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    if !is_blank(&request.system) {
        let instruction = json!({ "parts": [{ "text": request.system }] });
        body.insert("systemInstruction".into(), instruction);
    }
    let contents: Vec<_> = history::contents(request).into_iter().map(Value::from).collect();
    body.insert("contents".into(), contents.into());
    let mut names = HashSet::new();
    let fresh = request.tools.iter().filter(|tool| names.insert(tool_name(&tool.name)));
    let declarations: Vec<_> = fresh.map(declaration).collect();
    if !declarations.is_empty() {
        body.insert("tools".into(), json!([{ "functionDeclarations": declarations }]));
    }
    body
}

/// A tool. One without arguments has no parameters: an object without properties is refused.
fn declaration(tool: &ToolSpec) -> Value {
    let mut declaration = Map::new();
    declaration.insert("name".into(), tool_name(&tool.name).into());
    declaration.insert("description".into(), tool.description.clone().into());
    if let Some(parameters) = schema::parameters(&tool.input_schema) {
        declaration.insert("parameters".into(), parameters);
    }
    Value::Object(declaration)
}

fn generation(request: &ModelRequest) -> Map<String, Value> {
    let mut config = Map::new();
    if request.max_output_tokens > 0 {
        config.insert("maxOutputTokens".into(), request.max_output_tokens.into());
    }
    if let Some(temperature) = request.temperature {
        config.insert("temperature".into(), decimal(temperature.clamp(0.0, 2.0)));
    }
    if let Some(thinking) = thinking::config(request) {
        config.insert("thinkingConfig".into(), thinking);
    }
    config
}

/// A model's name as it stands in paths.
fn name(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

/// Whether a model wants signatures and ids with its calls, and takes images in their results.
fn is_third(model: &str) -> bool {
    name(model).starts_with("gemini-3")
}
