//! The bodies of requests.

mod items;
mod rules;

use ctxhost_engine_api::ToolSpec;
use serde_json::{Map, Value, json};

use crate::blocks::decimal;
use crate::request::ModelRequest;
pub(super) use items::input_items;

/// The smallest `max_output_tokens` that OpenAI accepts; less is answered with 400.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// Model families without thinking. They answer a request for encrypted reasoning with 400,
/// "Encrypted content is not supported with this model".
const UNTHINKING_FAMILIES: [&str; 4] = ["gpt-3", "gpt-4", "chatgpt-", "gpt-5-chat"];

/// The body of a streaming request.
pub(super) fn request_body(request: &ModelRequest) -> Value {
    let mut body = prompt(request);
    body.insert("stream".into(), true.into());
    body.insert("store".into(), false.into());
    if thinks(&request.model) {
        // The server stores nothing, so thinking has to come back complete.
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if request.max_output_tokens > 0 {
        let tokens = request.max_output_tokens.max(MIN_OUTPUT_TOKENS);
        body.insert("max_output_tokens".into(), tokens.into());
    }
    // Models refuse a temperature with thinking.
    if let Some(temperature) = request.temperature.filter(|_| effort(request).is_none()) {
        body.insert("temperature".into(), decimal(temperature));
    }
    add_cache_key(&mut body, request);
    Value::Object(body)
}

/// The body of a token count: the fields that count as prompt.
pub(super) fn count_body(request: &ModelRequest) -> Value {
    Value::Object(prompt(request))
}

/// Adds the prompt cache key.
pub(super) fn add_cache_key(body: &mut Map<String, Value>, request: &ModelRequest) {
    if let Some(key) = request.wire_cache_key() {
        body.insert("prompt_cache_key".into(), key.into());
    }
}

/// The fields that count as prompt.
fn prompt(request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), request.model.as_str().into());
    if !request.system.is_empty() {
        body.insert("instructions".into(), request.system.as_str().into());
    }
    body.insert("input".into(), input_items(&request.messages).into());
    if !request.tools.is_empty() {
        let tools: Vec<_> = request.tools.iter().map(tool).collect();
        body.insert("tools".into(), tools.into());
    }
    if let Some(effort) = effort(request) {
        body.insert("reasoning".into(), json!({ "effort": effort, "summary": "auto" }));
    }
    body
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.input_schema,
        // Unlike chat completions, this API defaults to strict schemas, which may not have optional
        // fields.
        "strict": false,
    })
}

fn effort(request: &ModelRequest) -> Option<&'static str> {
    Some(request.thinking).filter(|_| thinks(&request.model))?.effort()
}

fn thinks(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !UNTHINKING_FAMILIES.iter().any(|family| name.starts_with(family))
}
