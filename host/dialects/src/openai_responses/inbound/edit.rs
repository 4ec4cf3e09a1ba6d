//! Items as a plan changes them.

use serde_json::{Map, Value, json};

use super::{ItemKind, call_id_of, item_kind, parse_item, string, type_of};
use crate::inbound::ItemEdit;
use crate::message::{ChatBlock, ChatMessage};

/// Items of one unit, written anew.
pub(super) fn edit_items(items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
    let items: Vec<Map<String, Value>> = items.iter().filter_map(|item| parse_item(item)).collect();
    let is_answer = items.first().is_some_and(|item| item_kind(item) == ItemKind::Answer);
    match edits.first() {
        None | Some(ItemEdit::Keep) => items.into_iter().map(Value::from).collect(),
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) if is_answer => retell(items, text),
        Some(ItemEdit::ReplaceMessage(message)) if is_answer => rewrite(&items, message),
        Some(edit) => items.into_iter().map(|item| change_one(item, edit)).collect(),
    }
}

/// Whether a result takes another text. What other tools answer has a form of its own.
fn is_retellable(item: &Map<String, Value>) -> bool {
    matches!(type_of(item), "function_call_output" | "custom_tool_call_output")
        || item.get("output").is_some_and(Value::is_string)
}

/// Another text for an answer: calls stay, reasoning goes.
fn retell(items: Vec<Map<String, Value>>, text: &str) -> Vec<Value> {
    let calls = items.into_iter().filter(|item| call_id_of(item).is_some()).map(unnamed);
    let told = (!text.trim().is_empty()).then(|| spoken(text));
    told.into_iter().chain(calls).collect()
}

/// A call without the id of its item: by that the provider would ask for the reasoning that has gone.
fn unnamed(mut item: Map<String, Value>) -> Value {
    item.shift_remove("id");
    item.into()
}

fn spoken(text: &str) -> Value {
    let content = [json!({ "type": "output_text", "text": text })];
    json!({ "type": "message", "role": "assistant", "content": content })
}

/// Another answer: its calls keep the items that they came in.
fn rewrite(items: &[Map<String, Value>], message: &ChatMessage) -> Vec<Value> {
    let is_reasoning = |item: &Value| item.get("type").is_some_and(|kind| kind == "reasoning");
    let thinks = message
        .content()
        .iter()
        .any(|block| matches!(block, ChatBlock::ProviderItem { item, .. } if is_reasoning(item)));
    let written = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } if text.trim().is_empty() => None,
        ChatBlock::Text { text, .. } => Some(spoken(text)),
        ChatBlock::ToolCall(call) => {
            let mut item = items.iter().find(|item| string(item, "call_id") == call.id)?.clone();
            if !thinks {
                item.shift_remove("id");
            }
            Some(asked(item, &call.arguments))
        }
        ChatBlock::ProviderItem { item, .. } => Some(item.clone()),
        ChatBlock::Thinking { .. } | ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
    };
    message.content().iter().filter_map(written).collect()
}

fn asked(mut item: Map<String, Value>, arguments: &Value) -> Value {
    for key in ["arguments", "input"] {
        if let Some(Value::String(text)) = item.get_mut(key) {
            *text = match arguments {
                Value::String(raw) => raw.clone(),
                other => other.to_string(),
            };
        }
    }
    item.into()
}

/// A message of the person, an instruction or a result, with other content.
fn change_one(mut item: Map<String, Value>, edit: &ItemEdit<'_>) -> Value {
    let is_result = item_kind(&item) == ItemKind::Result;
    if is_result && !is_retellable(&item) {
        return item.into();
    }
    let key = if is_result { "output" } else { "content" };
    let content: Value = match edit {
        ItemEdit::ReplaceText(text) if key == "output" => text.clone().into_owned().into(),
        ItemEdit::ReplaceText(text) => json!([{ "type": "input_text", "text": text }]),
        ItemEdit::ReplaceMessage(message) => message.content().iter().filter_map(wire_of).collect(),
        ItemEdit::Keep | ItemEdit::Drop => return item.into(),
    };
    item.insert(key.into(), content);
    item.into()
}

fn wire_of(block: &ChatBlock) -> Option<Value> {
    match block {
        ChatBlock::Text { text, .. } => Some(json!({ "type": "input_text", "text": text })),
        ChatBlock::Image { data, mime_type } => {
            let url = format!("data:{mime_type};base64,{data}");
            Some(json!({ "type": "input_image", "image_url": url }))
        }
        ChatBlock::Other(part) => Some(part.clone()),
        _ => None,
    }
}
