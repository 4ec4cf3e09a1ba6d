//! The body of a request, except its messages.

mod messages;

use serde_json::{Map, Value, json};

use super::compat::{Compat, MaxTokensField};
use crate::blocks::decimal;
use crate::message::ChatMessage;
use crate::request::{ModelRequest, ThinkingLevel};

/// The body of a streaming request.
pub(super) fn request_body(request: &ModelRequest, compat: &Compat) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", request.model.as_str().into());
    put("messages", messages::request_messages(request, compat).into());
    put("stream", true.into());
    if compat.stream_usage {
        // Without it the stream has no usage.
        put("stream_options", json!({ "include_usage": true }));
    }
    if compat.store {
        // Keeps OpenAI from storing the completion, whatever its default.
        put("store", false.into());
    }
    let limit_tokens = limit_tokens(request);
    if limit_tokens > 0 {
        put(limit_field(request, compat), limit_tokens.into());
    }
    if let Some(temperature) = temperature(request) {
        put("temperature", temperature);
    }
    if let Some(effort) = request.thinking.effort().filter(|_| compat.reasoning_effort) {
        put("reasoning_effort", effort.into());
    }
    if let Some(key) = request.wire_cache_key().filter(|_| compat.prompt_cache_key) {
        put("prompt_cache_key", key.into());
    }
    put_tools(&mut body, request, compat);
    Value::Object(body)
}

/// O-6: an empty list of tools is refused.
fn put_tools(body: &mut Map<String, Value>, request: &ModelRequest, compat: &Compat) {
    let tool = |name: &str, description: &str, parameters: &Value| {
        let function =
            json!({ "name": name, "description": description, "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    let tools = request.tools.iter();
    let mut tools: Vec<_> =
        tools.map(|spec| tool(&spec.name, &spec.description, &spec.input_schema)).collect();
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

/// The called tools, each once, in the order of their first call.
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

/// O-11: never more output than the window; the prompt's size is unknown here.
fn limit_tokens(request: &ModelRequest) -> u64 {
    match request.window_tokens {
        0 => request.max_output_tokens,
        window_tokens => request.max_output_tokens.min(window_tokens),
    }
}

/// O-10: reasoning models refuse `max_tokens`.
fn limit_field(request: &ModelRequest, compat: &Compat) -> &'static str {
    match compat.max_tokens_field {
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
        MaxTokensField::ByModel if reasons(&request.model) => "max_completion_tokens",
        MaxTokensField::ByModel | MaxTokensField::MaxTokens => "max_tokens",
    }
}

/// O-10: reasoning models refuse a temperature.
fn temperature(request: &ModelRequest) -> Option<Value> {
    let may = request.thinking == ThinkingLevel::Off && !reasons(&request.model);
    request.temperature.filter(|_| may).map(decimal)
}

/// Whether the name is that of a reasoning model, with or without a vendor prefix.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family))
}
