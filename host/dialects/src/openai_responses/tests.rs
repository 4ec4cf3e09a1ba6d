mod body;
mod check;
mod client_items;
mod compaction;
mod rules;
mod stream;

use serde_json::{Value, json};

use super::*;
use crate::message::{AssistantMessage, ChatBlock, ToolCallBlock, ToolResultMessage};

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest { model: "gpt-5.1".into(), messages, ..ModelRequest::default() }
}

/// The items that are written for these messages; they pass the checker.
fn input(messages: Vec<ChatMessage>) -> Vec<Value> {
    let body = OpenAiResponses.encode(&request(messages));
    check::check(&body).unwrap();
    body["input"].as_array().unwrap().clone()
}

fn kinds(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["type"].as_str().unwrap()).collect()
}

fn answer(content: Vec<ChatBlock>) -> ChatMessage {
    ChatMessage::Assistant(AssistantMessage { content, api: API.into(), ..Default::default() })
}

fn call(id: &str) -> ChatBlock {
    ChatBlock::ToolCall(ToolCallBlock {
        id: id.into(),
        name: "read_file".into(),
        arguments: json!({ "path": "a.rs" }),
        thought_signature: None,
    })
}

fn result(id: &str, text: &str) -> ChatMessage {
    ChatMessage::ToolResult(ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "read_file".into(),
        content: vec![ChatBlock::text(text)],
        ..Default::default()
    })
}

fn reasoning(item: Value) -> ChatBlock {
    let thinking_signature = Some(item.to_string());
    ChatBlock::Thinking { thinking: String::new(), thinking_signature, redacted: false }
}

fn encrypted(id: &str) -> Value {
    json!({ "id": id, "type": "reasoning", "summary": [], "encrypted_content": "gAAAAABo" })
}

fn item(item: Value) -> ChatBlock {
    ChatBlock::ProviderItem { api: API.into(), item }
}
