//! Conversion of items of the Responses API, which OpenAI documents and Codex rollouts hold.

use serde_json::Value;

use super::block::{self, arguments, joined_text, kind, string};
use super::draft::{ImportDraft, ImportedResult};

/// The meaning of an item in a conversation.
pub(super) enum ResponseItem {
    System(String),
    User(Vec<Value>),
    /// Blocks of a reply, which may have several items.
    Reply(Vec<Value>),
    Result(ImportedResult),
    /// Not visible to the model, or reported as a problem.
    Nothing,
}

/// Converts an item; problems are added to the draft.
pub(super) fn read_item(draft: &mut ImportDraft, line: u64, mut item: Value) -> ResponseItem {
    match kind(&item) {
        "message" => message(draft, line, item),
        "reasoning" => ResponseItem::Reply(vec![reasoning(&item)]),
        // A git commit to which Codex can return; it is never sent to a model.
        "ghost_snapshot" => ResponseItem::Nothing,
        "" => {
            draft.add_problem(line, "an item without a type");
            ResponseItem::Nothing
        }
        of if of.ends_with("_output") && item.get("call_id").is_some_and(Value::is_string) => {
            result(draft, line, &mut item)
        }
        // Calls that the provider executes itself have no call id and are kept as they are.
        of if of.ends_with("_call") => ResponseItem::Reply(vec![call(&item).unwrap_or(item)]),
        _ => ResponseItem::Reply(vec![item]),
    }
}

fn message(draft: &mut ImportDraft, line: u64, mut item: Value) -> ResponseItem {
    let content = item.get_mut("content").map(Value::take).unwrap_or_default();
    match string(&item, "role") {
        Some("system" | "developer") => ResponseItem::System(joined_text(&content)),
        Some("user") => ResponseItem::User(draft.convert_blocks(line, content, pi_block)),
        Some("assistant") => ResponseItem::Reply(draft.convert_blocks(line, content, pi_block)),
        _ => {
            draft.add_problem(line, "a message with an unknown role");
            ResponseItem::Nothing
        }
    }
}

/// The thinking as plain text if the provider returned it, else its summary.
fn reasoning(item: &Value) -> Value {
    let words = |name| item.get(name).map(joined_text).filter(|text| !text.is_empty());
    let thinking = words("content").or_else(|| words("summary")).unwrap_or_default();
    block::thinking(&thinking, string(item, "encrypted_content"))
}

/// A call of any kind. Each kind has its own field for the arguments.
fn call(item: &Value) -> Option<Value> {
    let call_id = string(item, "call_id")?;
    let name = string(item, "name").or_else(|| kind(item).strip_suffix("_call"))?;
    let given = ["input", "action", "operation"].iter().find_map(|name| item.get(*name));
    let given = match item.get("arguments") {
        Some(Value::String(written)) => arguments(written),
        Some(given) => given.clone(),
        None => given.cloned().unwrap_or_default(),
    };
    Some(block::tool_call(call_id, name, given))
}

/// The result of a call: a string, a list of parts, or an object with either and `success`.
fn result(draft: &mut ImportDraft, line: u64, item: &mut Value) -> ResponseItem {
    let call_id = string(item, "call_id").unwrap_or_default().to_owned();
    let is_error = succeeded(item) == Some(false);
    let mut output = match item.get_mut("output").map(Value::take) {
        Some(output) => output,
        None => item.to_string().into(),
    };
    if output.is_object() {
        let inner = ["content_items", "content"].iter().find_map(|name| {
            output.get_mut(*name).filter(|inner| !inner.is_null()).map(Value::take)
        });
        output = inner.unwrap_or_else(|| output.to_string().into());
    }
    let content = draft.convert_blocks(line, output, pi_block);
    ResponseItem::Result(ImportedResult { call_id, tool: None, content, is_error })
}

fn succeeded(item: &Value) -> Option<bool> {
    item.get("output")?.get("success")?.as_bool()
}

/// Converts a content part to Pi's form; types unknown to Pi are kept as they are.
pub(super) fn pi_block(part: Value) -> Value {
    let known = match kind(&part) {
        "text" | "input_text" | "output_text" => string(&part, "text").map(block::text),
        "refusal" => string(&part, "refusal").map(block::text),
        "image_url" | "input_image" => image_url(&part).map(block::image_at),
        _ => None,
    };
    known.unwrap_or(part)
}

/// The URL of an image part: a string in the Responses API, an object with it in the other.
fn image_url(part: &Value) -> Option<&str> {
    let address = part.get("image_url")?;
    address.as_str().or_else(|| string(address, "url"))
}
