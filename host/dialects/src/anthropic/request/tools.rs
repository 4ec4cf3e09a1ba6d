//! The tool declarations of a request.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::message::ChatBlock;
use crate::request::ModelRequest;
use crate::schema::object_root;
use crate::tool_name::legalize_tool_name;
use ctxhost_engine_api::ToolSpec;

/// The tools of a request.
pub(super) struct ToolDeclarations {
    /// The declarations.
    pub list: Vec<Value>,
    /// Whether they only declare the calls of the history, and none may be called.
    pub are_historical: bool,
}

/// The tools of a request, else those that its history calls.
pub(super) fn declare_tools(request: &ModelRequest) -> ToolDeclarations {
    let mut names = HashSet::new();
    if !request.tools.is_empty() {
        let fresh =
            request.tools.iter().filter(|tool| names.insert(legalize_tool_name(&tool.name)));
        return ToolDeclarations { list: fresh.map(declaration).collect(), are_historical: false };
    }
    // Some endpoints refuse a history with calls of undeclared tools.
    let calls = request.messages.iter().flat_map(|message| message.content());
    let called = calls.filter_map(|block| match block {
        ChatBlock::ToolCall(call) => Some(legalize_tool_name(&call.name)),
        _ => None,
    });
    let list: Vec<_> = called.filter(|name| names.insert(name.clone())).map(placeholder).collect();
    ToolDeclarations { are_historical: !list.is_empty(), list }
}

fn declaration(tool: &ToolSpec) -> Value {
    json!({
        "name": legalize_tool_name(&tool.name),
        "description": tool.description,
        "input_schema": object_root(&tool.input_schema),
    })
}

fn placeholder(name: String) -> Value {
    json!({
        "name": name,
        "description": "No longer available.",
        "input_schema": { "type": "object", "properties": {} },
    })
}
