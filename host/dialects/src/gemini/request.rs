//! The body of a request: contents, tools, generation settings.

mod history;
mod schema;
mod thinking;

use std::collections::HashSet;

use ctxhost_engine_api::ToolSpec;
use serde_json::{Map, Value, json};

use crate::blocks::decimal;
use crate::pairing::is_blank;
use crate::request::ModelRequest;
use crate::tool_name::legalize_tool_name;

/// The body of a request; the path says whether it streams.
pub(super) fn request_body(request: &ModelRequest) -> Value {
    let mut body = prompt_fields(request);
    let generation = generation(request);
    if !generation.is_empty() {
        body.insert("generationConfig".into(), generation.into());
    }
    Value::Object(body)
}

/// The fields that count as prompt.
pub(super) fn prompt_fields(request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    if !is_blank(&request.system) {
        let instruction = json!({ "parts": [{ "text": request.system }] });
        body.insert("systemInstruction".into(), instruction);
    }
    let contents: Vec<_> = history::contents(request).into_iter().map(Value::from).collect();
    body.insert("contents".into(), contents.into());
    let mut names = HashSet::new();
    let fresh = request.tools.iter().filter(|tool| names.insert(legalize_tool_name(&tool.name)));
    let declarations: Vec<_> = fresh.map(declaration).collect();
    if !declarations.is_empty() {
        body.insert("tools".into(), json!([{ "functionDeclarations": declarations }]));
    }
    body
}

/// The declaration of a tool, without `parameters` if it has none: an empty object is refused.
fn declaration(tool: &ToolSpec) -> Value {
    let mut declaration = Map::new();
    declaration.insert("name".into(), legalize_tool_name(&tool.name).into());
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
