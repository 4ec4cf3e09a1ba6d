//! Conversations for tests of dialects: valid ones (`rounds`) and requests with invalid ones (`scenes`).

mod rounds;
mod scenes;

use ctxhost_engine_api::ToolSpec;
use serde_json::{Value, json};

use crate::message::{AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage};
use crate::request::ModelRequest;

pub(super) use rounds::conversations;
pub(super) use scenes::requests;

/// An answer of the model in a dialect.
pub(super) fn assistant_message(api: &str, model: &str, content: Vec<ChatBlock>) -> ChatMessage {
    let (api, model) = (api.to_owned(), model.to_owned());
    ChatMessage::Assistant(AssistantMessage { content, api, model, ..AssistantMessage::default() })
}

/// A call.
pub(super) fn call(id: &str, name: &str, arguments: Value) -> ChatBlock {
    let (id, name) = (id.to_owned(), name.to_owned());
    ChatBlock::ToolCall(ToolCallBlock { id, name, arguments, thought_signature: None })
}

/// A result with a text.
pub(super) fn result(id: &str, text: &str) -> ChatMessage {
    result_of(id, vec![ChatBlock::text(text)], false)
}

/// A result with anything.
pub(super) fn result_of(id: &str, content: Vec<ChatBlock>, is_error: bool) -> ChatMessage {
    ChatMessage::ToolResult(ToolResultMessage {
        tool_call_id: id.to_owned(),
        tool_name: "read".to_owned(),
        content,
        is_error,
        timestamp: 0,
    })
}

/// Thinking, perhaps signed.
pub(super) fn thinking_block(thinking: &str, signature: Option<&str>) -> ChatBlock {
    let thinking_signature = signature.map(str::to_owned);
    ChatBlock::Thinking { thinking: thinking.to_owned(), thinking_signature, redacted: false }
}

/// A small image.
pub(super) fn image() -> ChatBlock {
    ChatBlock::Image { data: "iVBORw0KGgo=".to_owned(), mime_type: "image/png".to_owned() }
}

/// A tool.
pub(super) fn tool(name: &str, input_schema: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "Does it.".to_owned(), input_schema }
}

/// A request with a tool.
pub(super) fn request(model: &str, messages: Vec<ChatMessage>) -> ModelRequest {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest {
        model: model.to_owned(),
        system: "You read files.".to_owned(),
        messages,
        tools: vec![tool("read", schema)],
        max_output_tokens: 32_000,
        ..ModelRequest::default()
    }
}
