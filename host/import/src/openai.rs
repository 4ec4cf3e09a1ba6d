//! Import of OpenAI messages: of chat completions, or items of the Responses API.
//!
//! A reply of the Responses API is a sequence of items: reasoning, text and calls. They become one message.

use serde_json::Value;

use super::block::{self, joined_text, string};
use super::chat::ChatDocument;
use super::draft::{ImportDraft, ImportedReply, ImportedResult};
use super::json_lines::JsonRecord;
use super::response_item::{ResponseItem, pi_block, read_item};
use super::transcript::{ImportError, ImportFormat, ImportedTranscript};

pub(super) const PROVIDER: &str = "openai";
const API: &str = "openai-completions";
const ITEMS_API: &str = "openai-responses";

/// Imports a list of messages, a request body, or one message per line.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let chat = ChatDocument::read(bytes);
    let has_items = chat.messages.iter().flatten().any(is_item);
    let api = if has_items { ITEMS_API } else { API };
    let mut draft = ImportDraft::new(ImportFormat::OpenAi, PROVIDER, api);
    draft.set_tools(chat.tools);
    if let Some(model) = chat.model {
        draft.set_model(&model);
    }
    if let Some(instructions) = chat.instructions.as_str().filter(|text| !text.is_empty()) {
        draft.add_system(instructions.into(), None);
    }
    for message in chat.messages {
        let Some(message) = draft.accept(message) else { continue };
        // A list of items may also have messages in the short form, without a type.
        if has_items && message.text("type").is_some() {
            add_item(&mut draft, message);
        } else {
            add(&mut draft, message);
        }
    }
    draft.finish()
}

/// Whether the record is an item of the Responses API other than a message.
fn is_item(record: &JsonRecord) -> bool {
    let has_type = |of: &str| of == "reasoning" || of.ends_with("_call") || of.ends_with("_output");
    record.text("role").is_none() && record.text("type").is_some_and(has_type)
}

fn add_item(draft: &mut ImportDraft, written: JsonRecord) {
    let (line, known_ms) = (written.line, written.timestamp_ms());
    match read_item(draft, line, Value::Object(written.fields)) {
        ResponseItem::System(text) => draft.add_system(text, known_ms),
        ResponseItem::User(blocks) => draft.add_user(line, blocks, known_ms),
        ResponseItem::Result(result) => draft.add_result(result, known_ms),
        ResponseItem::Reply(blocks) => {
            let part = ImportedReply { blocks, ..ImportedReply::default() };
            if draft.newest_role() == "assistant" {
                return draft.extend_reply(draft.len() - 1, part);
            }
            draft.add_reply(line, part, known_ms);
        }
        ResponseItem::Nothing => {}
    }
}

fn add(draft: &mut ImportDraft, mut message: JsonRecord) {
    let known_ms = message.timestamp_ms();
    let line = message.line;
    match message.text("role") {
        Some("system" | "developer") => {
            draft.add_system(joined_text(&message.take("content")), known_ms);
        }
        Some("user") => {
            let blocks = draft.convert_blocks(line, message.take("content"), pi_block);
            draft.add_user(line, blocks, known_ms);
        }
        Some("assistant") => {
            let reply = reply(draft, &mut message);
            draft.add_reply(line, reply, known_ms);
        }
        Some("tool" | "function") => add_result(draft, message, known_ms),
        _ => draft.add_problem(line, "a message with an unknown role"),
    }
}

fn add_result(draft: &mut ImportDraft, mut message: JsonRecord, known_ms: Option<i64>) {
    let line = message.line;
    let call_id = match message.text("role") {
        Some("function") => Some(legacy_call_id(draft.len().saturating_sub(1))),
        _ => message.text("tool_call_id").map(str::to_owned),
    };
    let Some(call_id) = call_id else {
        return draft.add_problem(line, "a tool result without a call id");
    };
    let tool = message.text("name").map(str::to_owned);
    let content = draft.convert_blocks(line, message.take("content"), pi_block);
    draft.add_result(ImportedResult { call_id, tool, content, is_error: false }, known_ms);
}

/// The reply in an assistant message: thinking, text, calls.
fn reply(draft: &mut ImportDraft, message: &mut JsonRecord) -> ImportedReply {
    // DeepSeek and vLLM call it `reasoning_content`, OpenRouter `reasoning`.
    let thinking = ["reasoning_content", "reasoning"].iter().find_map(|name| message.text(name));
    let thinking = thinking.filter(|thinking| !thinking.is_empty());
    let mut blocks: Vec<Value> = thinking.map(|t| block::thinking(t, None)).into_iter().collect();
    let content = message.take("content");
    blocks.extend(draft.convert_blocks(message.line, content, pi_block));
    blocks.extend(message.text("refusal").map(block::text));
    let calls = message.take("tool_calls");
    blocks.extend(draft.convert_blocks(message.line, calls, pi_call));
    blocks.extend(legacy_pi_call(draft.len(), &message.take("function_call")));
    ImportedReply {
        blocks,
        model: message.text("model").map(str::to_owned),
        ..ImportedReply::default()
    }
}

/// Converts a call to Pi's form; one without id or name is kept as it is.
fn pi_call(written: Value) -> Value {
    let function = written.get("function").or_else(|| written.get("custom"));
    let call = function.and_then(|function| {
        // Custom tools have a plain text as `input` instead of JSON arguments.
        let written_arguments = function.get("arguments").or_else(|| function.get("input"));
        let arguments = match string(function, "arguments") {
            Some(text) => block::arguments(text),
            None => written_arguments.cloned().unwrap_or_default(),
        };
        Some(block::tool_call(string(&written, "id")?, string(function, "name")?, arguments))
    });
    call.unwrap_or(written)
}

/// Converts a legacy `function_call`, which has no id.
fn legacy_pi_call(place: usize, written: &Value) -> Option<Value> {
    let name = string(written, "name")?;
    let arguments = string(written, "arguments").map(block::arguments).unwrap_or_default();
    Some(block::tool_call(&legacy_call_id(place), name, arguments))
}

/// The id of a legacy call. Its result is the next message, so the index identifies it.
fn legacy_call_id(place: usize) -> String {
    format!("function_{place}")
}

#[cfg(test)]
mod tests;
