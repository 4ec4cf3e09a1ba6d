//! Applies the edits of a plan to items.

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use serde_json::{Value, json};

use super::{ItemKind, answered_call_id, call_id_of, is_reference, kind_of, type_of};
use crate::blocks::data_url;
use crate::inbound::{ItemEdit, client_id};
use crate::json::{parse_object, remove, set, text, text_or_json};
use crate::message::{ChatBlock, ChatMessage, text_of};

/// A PNG image of one pixel.
const SMALLEST_IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The items of one group after its edit.
pub(super) fn edit_items(items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
    let items: Vec<Value> = items.iter().filter_map(|item| parse_object(item).ok()).collect();
    let is_answer = items.first().is_some_and(|item| kind_of(item) == ItemKind::Answer);
    match edits.first() {
        None | Some(ItemEdit::Keep) => items,
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) if is_answer => replace_text(items, text),
        Some(ItemEdit::ReplaceMessage(message)) if is_answer => replace_answer(&items, message),
        Some(edit) => items.into_iter().map(|item| edit_item(item, edit)).collect(),
    }
}

/// An answer with another text: calls stay, reasoning is dropped.
fn replace_text(items: Vec<Value>, text: &str) -> Vec<Value> {
    if items.iter().any(must_stay_whole) {
        return items;
    }
    let calls = items.into_iter().filter(|item| client_call_id(item).is_some());
    let calls = calls.map(|mut call| {
        // With the item's id the provider would require the dropped reasoning before it.
        remove(&mut call, "id");
        call
    });
    let message = (!text.trim().is_empty()).then(|| output_message(text));
    message.into_iter().chain(calls).collect()
}

fn output_message(text: &str) -> Value {
    let content = [json!({ "type": "output_text", "text": text })];
    json!({ "type": "message", "role": "assistant", "content": content })
}

/// Whether an answer with this item is sent as it is or not at all: an approval names the id of its request, which the
/// provider accepts only behind the original reasoning, and a result may answer any of the answer's references.
fn must_stay_whole(item: &Value) -> bool {
    type_of(item) == "mcp_approval_request" || kind_of(item) == ItemKind::Result
}

/// An answer with other content; its calls keep their items.
fn replace_answer(items: &[Value], message: &ChatMessage) -> Vec<Value> {
    if items.iter().any(must_stay_whole) {
        return items.to_vec();
    }
    let is_reasoning = |block: &ChatBlock| matches!(block, ChatBlock::ProviderItem { item, .. } if text(item, "type") == "reasoning" || is_reference(item));
    let has_reasoning = message.content().iter().any(is_reasoning);
    let mut calls = OpenCalls::default();
    calls.open(items.iter().filter_map(|item| Some((client_call_id(item)?, item))));
    let wire = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } if text.trim().is_empty() => None,
        ChatBlock::Text { text, .. } => Some(output_message(text)),
        ChatBlock::ToolCall(call) => {
            let mut item = calls.take(client_id(&call.id))?.clone();
            if !has_reasoning {
                remove(&mut item, "id");
            }
            set_arguments(&mut item, &call.arguments);
            Some(item)
        }
        ChatBlock::ProviderItem { item, .. } => Some(item.clone()),
        ChatBlock::Thinking { .. } | ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
    };
    message.content().iter().filter_map(wire).collect()
}

/// The id of a call as the client wrote it; `None` for what is not a call that it answers.
fn client_call_id(item: &Value) -> Option<String> {
    let is_call = call_id_of(item).is_some() || answered_call_id(item, 0).is_some();
    is_call.then(|| call_id_of(item).unwrap_or_default().to_owned())
}

fn set_arguments(item: &mut Value, arguments: &Value) {
    for field in ["arguments", "input"] {
        if let Some(Value::String(text)) = item.get_mut(field) {
            *text = text_or_json(arguments);
        }
    }
}

/// A user message, an instruction or a result with other content.
fn edit_item(mut item: Value, edit: &ItemEdit<'_>) -> Value {
    let is_result = kind_of(&item) == ItemKind::Result;
    if is_result && !has_text_output(&item) {
        return edit_other_output(item, edit);
    }
    let content: Value = match edit {
        ItemEdit::ReplaceText(text) if is_result => text.as_ref().into(),
        ItemEdit::ReplaceText(text) => json!([{ "type": "input_text", "text": text }]),
        ItemEdit::ReplaceMessage(message) => {
            message.content().iter().filter_map(wire_part).collect()
        }
        ItemEdit::Keep | ItemEdit::Drop => return item,
    };
    set(&mut item, if is_result { "output" } else { "content" }, content);
    item
}

/// A result whose output has a form of its own: the text of a shell is its `stdout`, a screenshot without its image is
/// the smallest one. Other forms stay.
fn edit_other_output(mut item: Value, edit: &ItemEdit<'_>) -> Value {
    let text = match edit {
        ItemEdit::ReplaceText(text) => text.to_string(),
        ItemEdit::ReplaceMessage(message) => {
            if message.content().iter().any(|block| matches!(block, ChatBlock::Image { .. })) {
                return item;
            }
            text_of(message.content())
        }
        ItemEdit::Keep | ItemEdit::Drop => return item,
    };
    match type_of(&item) {
        "shell_call_output" => {
            let outcome = item.pointer("/output/0/outcome").cloned();
            let outcome = outcome.unwrap_or_else(|| json!({ "type": "exit", "exit_code": 0 }));
            let output = json!([{ "stdout": text, "stderr": "", "outcome": outcome }]);
            set(&mut item, "output", output);
        }
        "computer_call_output" => {
            if let Some(output) = item.get_mut("output").filter(|output| output.is_object()) {
                set(output, "image_url", SMALLEST_IMAGE);
                remove(output, "file_id");
            }
        }
        _ => {}
    }
    item
}

/// Whether the output of a result may be a text. Other tools require forms of their own.
fn has_text_output(item: &Value) -> bool {
    matches!(type_of(item), "function_call_output" | "custom_tool_call_output")
        || item.get("output").is_some_and(Value::is_string)
}

fn wire_part(block: &ChatBlock) -> Option<Value> {
    match block {
        ChatBlock::Text { text, .. } => Some(json!({ "type": "input_text", "text": text })),
        ChatBlock::Image { data, mime_type } => {
            Some(json!({ "type": "input_image", "image_url": data_url(mime_type, data) }))
        }
        ChatBlock::Other(part) => Some(part.clone()),
        _ => None,
    }
}
