//! The body of a request, all but its messages.

mod messages;

use serde_json::{Map, Value, json};

use super::compat::{Compat, MaxTokensField};
use crate::message::ChatMessage;
use crate::request::{ModelRequest, ThinkingLevel};

/// The longest cache key that OpenAI takes, in characters.
const CACHE_KEY_MAX_CHARS: usize = 64;

/// A streaming request.
pub(super) fn request_body(request: &ModelRequest, compat: &Compat) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", request.model.as_str().into());
    put("messages", messages::request_messages(request, compat).into());
    put("stream", true.into());
    if compat.stream_usage {
        put("stream_options", json!({ "include_usage": true }));
    }
    if compat.store {
        put("store", false.into());
    }
    let limit_tokens = limit_tokens(request);
    if limit_tokens > 0 {
        put(limit_field(request, compat), limit_tokens.into());
    }
    if let Some(temperature) = temperature(request) {
        put("temperature", temperature);
    }
    if let Some(effort) = effort(request.thinking).filter(|_| compat.reasoning_effort) {
        put("reasoning_effort", effort.into());
    }
    if compat.prompt_cache_key && !request.cache_key.is_empty() {
        let key: String = request.cache_key.chars().take(CACHE_KEY_MAX_CHARS).collect();
        put("prompt_cache_key", key.into());
    }
    put_tools(&mut body, request, compat);
    Value::Object(body)
}

/// O-6: tools are a list with something in it, or no list at all.
fn put_tools(body: &mut Map<String, Value>, request: &ModelRequest, compat: &Compat) {
    let tool = |name: &str, description: &str, parameters: &Value| {
        let function =
            json!({ "name": name, "description": description, "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    let tools = request.tools.iter();
    let mut tools: Vec<_> =
        tools.map(|it| tool(&it.name, &it.description, &it.input_schema)).collect();
    if tools.is_empty() && compat.tools_with_history {
        let nothing = json!({ "type": "object", "properties": {} });
        let names = names_in_history(request);
        tools = names.iter().map(|name| tool(name, "no longer offered", &nothing)).collect();
        if !tools.is_empty() {
            body.insert("tool_choice".to_owned(), "none".into());
        }
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
}

/// The tools that were called, each once, in the order of their first call.
fn names_in_history(request: &ModelRequest) -> Vec<&str> {
    let mut names = Vec::new();
    for message in &request.messages {
        let ChatMessage::Assistant(message) = message else { continue };
        for call in message.tool_calls() {
            if !names.contains(&call.name.as_str()) {
                names.push(&call.name);
            }
        }
    }
    names
}

/// O-11, as far as it can be known here: more output than the window is never asked for.
fn limit_tokens(request: &ModelRequest) -> u64 {
    match request.window_tokens {
        0 => request.max_output_tokens,
        window_tokens => request.max_output_tokens.min(window_tokens),
    }
}

/// O-10: models that reason refuse `max_tokens`.
fn limit_field(request: &ModelRequest, compat: &Compat) -> &'static str {
    match compat.max_tokens_field {
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
        MaxTokensField::ByModel if reasons(&request.model) => "max_completion_tokens",
        MaxTokensField::ByModel | MaxTokensField::MaxTokens => "max_tokens",
    }
}

/// O-10: models that reason refuse a temperature.
fn temperature(request: &ModelRequest) -> Option<Value> {
    let may = request.thinking == ThinkingLevel::Off && !reasons(&request.model);
    // By way of text: 0.2 as f32 is 0.20000000298 as JSON.
    let number = request.temperature.filter(|_| may)?.to_string().parse::<f64>().ok()?;
    Some(number.into())
}

/// Whether a model is known to reason by its name, with or without a maker before it.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family))
}

fn effort(thinking: ThinkingLevel) -> Option<&'static str> {
    match thinking {
        ThinkingLevel::Off => None,
        ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
    }
}
