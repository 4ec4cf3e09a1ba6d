//! Items as a plan changes them.

use serde_json::{Map, Value, json};

use super::{Sort, call_id_of, read, sort, string, type_of};
use crate::inbound::Edit;
use crate::message::{ChatMessage, Content};

/// Items of one unit, written anew.
pub(super) fn changed(items: &[&str], edits: &[Edit<'_>]) -> Vec<Value> {
    let items: Vec<Map<String, Value>> = items.iter().filter_map(|item| read(item)).collect();
    let is_answer = items.first().is_some_and(|item| sort(item) == Sort::Answer);
    match edits.first() {
        None | Some(Edit::Keep) => items.into_iter().map(Value::from).collect(),
        Some(Edit::Drop) => Vec::new(),
        Some(Edit::ReplaceText(text)) if is_answer => retell(items, text),
        Some(Edit::ReplaceMessage(message)) if is_answer => rewrite(&items, message),
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
        .any(|block| matches!(block, Content::ProviderItem { item, .. } if is_reasoning(item)));
    let written = |block: &Content| match block {
        Content::Text { text, .. } if text.trim().is_empty() => None,
        Content::Text { text, .. } => Some(spoken(text)),
        Content::ToolCall(call) => {
            let mut item = items.iter().find(|item| string(item, "call_id") == call.id)?.clone();
            if !thinks {
                item.shift_remove("id");
            }
            Some(asked(item, &call.arguments))
        }
        Content::ProviderItem { item, .. } => Some(item.clone()),
        Content::Thinking { .. } | Content::Image { .. } | Content::Other(_) => None,
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
fn change_one(mut item: Map<String, Value>, edit: &Edit<'_>) -> Value {
    let is_result = sort(&item) == Sort::Result;
    if is_result && !is_retellable(&item) {
        return item.into();
    }
    let key = if is_result { "output" } else { "content" };
    let content: Value = match edit {
        Edit::ReplaceText(text) if key == "output" => text.clone().into_owned().into(),
        Edit::ReplaceText(text) => json!([{ "type": "input_text", "text": text }]),
        Edit::ReplaceMessage(message) => message.content().iter().filter_map(wire_of).collect(),
        Edit::Keep | Edit::Drop => return item.into(),
    };
    item.insert(key.into(), content);
    item.into()
}

fn wire_of(block: &Content) -> Option<Value> {
    match block {
        Content::Text { text, .. } => Some(json!({ "type": "input_text", "text": text })),
        Content::Image { data, mime_type } => {
            let url = format!("data:{mime_type};base64,{data}");
            Some(json!({ "type": "input_image", "image_url": url }))
        }
        Content::Other(part) => Some(part.clone()),
        _ => None,
    }
}
