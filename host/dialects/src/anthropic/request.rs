//! The body of a request: prompt, limit of the answer, temperature.

mod cache;
mod history;
mod thinking;
mod tools;

use serde_json::{Map, Value, json};

use super::{Anthropic, ContextEditing};
use crate::blocks::decimal;
use crate::pairing::is_blank;
use crate::request::ModelRequest;
use thinking::ThinkingMode;

/// The limit of the answer if the request has none. The field is mandatory, and every model still
/// served supports this many.
const OUTPUT_DEFAULT_TOKENS: u64 = 8_192;

/// The body of a streaming request.
pub(super) fn request_body(dialect: &Anthropic, request: &ModelRequest) -> Value {
    let mut body = prompt_fields(dialect, request);
    body.insert("max_tokens".into(), output_tokens(request).into());
    body.insert("stream".into(), true.into());
    if let Some(temperature) = temperature(request, &body) {
        body.insert("temperature".into(), decimal(temperature));
    }
    Value::Object(body)
}

/// The fields that count as prompt.
pub(super) fn prompt_fields(dialect: &Anthropic, request: &ModelRequest) -> Map<String, Value> {
    let mut messages = history::messages(request);
    let thinking = ThinkingMode::for_request(request, output_tokens(request), &messages);
    let mut tools = tools::declare_tools(request);
    let mut system = system(&request.system);
    // After all blocks are final: each mark belongs to the last block of its part.
    cache::mark(&mut tools.list, &mut system, &mut messages, dialect.one_hour_cache);

    let mut body = Map::new();
    body.insert("model".into(), request.model.clone().into());
    insert_unless_empty(&mut body, "system", system);
    insert_unless_empty(&mut body, "tools", tools.list);
    if tools.are_historical {
        body.insert("tool_choice".into(), json!({ "type": "none" }));
    }
    let messages: Vec<_> = messages.into_iter().map(Value::from).collect();
    body.insert("messages".into(), messages.into());
    thinking.write(&mut body, dialect.drop_unbound_thinking);
    if let Some(editing) = &dialect.context_editing {
        body.insert("context_management".into(), context_management(editing));
    }
    body
}

/// The option by which the provider clears old results.
fn context_management(editing: &ContextEditing) -> Value {
    let mut edit = json!({
        "type": "clear_tool_uses_20250919",
        "trigger": { "type": "input_tokens", "value": editing.trigger_tokens },
        "keep": { "type": "tool_uses", "value": editing.keep_calls },
        "clear_tool_inputs": editing.clear_arguments,
    });
    if let Some(edit) = edit.as_object_mut() {
        if editing.clear_at_least_tokens > 0 {
            let least = json!({ "type": "input_tokens", "value": editing.clear_at_least_tokens });
            edit.insert("clear_at_least".into(), least);
        }
        if !editing.exclude_tools.is_empty() {
            edit.insert("exclude_tools".into(), editing.exclude_tools.clone().into());
        }
    }
    json!({ "edits": [edit] })
}

fn system(text: &str) -> Vec<Value> {
    let block = || json!({ "type": "text", "text": text });
    if is_blank(text) { Vec::new() } else { vec![block()] }
}

fn output_tokens(request: &ModelRequest) -> u64 {
    match request.max_output_tokens {
        0 => OUTPUT_DEFAULT_TOKENS,
        tokens => tokens,
    }
}

/// The temperature, unless the request thinks.
fn temperature(request: &ModelRequest, body: &Map<String, Value>) -> Option<f32> {
    let is_allowed = !body.contains_key("thinking") && !thinking::is_adaptive(&request.model);
    request.temperature.filter(|_| is_allowed).map(|temperature| temperature.clamp(0.0, 1.0))
}

fn insert_unless_empty(body: &mut Map<String, Value>, key: &str, values: Vec<Value>) {
    if !values.is_empty() {
        body.insert(key.to_owned(), values.into());
    }
}
