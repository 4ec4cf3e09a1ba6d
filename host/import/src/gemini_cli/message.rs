//! Converts a message of Gemini CLI: text, thoughts, calls with their results, usage.

use serde_json::{Map, Value};

use super::super::block::{self, ReplyUsage, joined_text, string, tokens};
use super::super::draft::{ImportDraft, ImportedReply, ImportedResult};
use super::super::json_lines::JsonRecord;

/// The type of a reply.
const GEMINI: &str = "gemini";

/// The type of a reply of Qwen Code, which wrote the same chats before it had a format of its own.
const QWEN: &str = "qwen";

/// Whether a record is a reply of the model.
pub(super) fn is_reply(record: &JsonRecord) -> bool {
    matches!(record.text("type"), Some(GEMINI | QWEN))
}

/// Adds the messages of a record. Notes of the program, which the model does not see, are skipped.
pub(super) fn write_message(draft: &mut ImportDraft, mut record: JsonRecord) {
    let (line, known_ms) = (record.line, record.timestamp_ms());
    match record.text("type") {
        Some("user") => {
            let content = record.take("content");
            let parts = parts_of(content);
            let (results, parts): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.get("functionResponse").is_some());
            let has_results = !results.is_empty();
            for part in results {
                add_response(draft, part, known_ms);
            }
            let blocks: Vec<Value> = parts.into_iter().filter_map(pi_block).collect();
            if !blocks.is_empty() || !has_results {
                draft.add_user(line, blocks, known_ms);
            }
        }
        Some(GEMINI | QWEN) => add_reply(draft, record, known_ms),
        Some("info" | "warning" | "error") => {}
        _ => draft.add_problem(line, "a message of an unknown type"),
    }
}

fn add_reply(draft: &mut ImportDraft, mut record: JsonRecord, known_ms: Option<i64>) {
    let line = record.line;
    let thoughts = record.take("thoughts");
    let mut blocks: Vec<Value> =
        thoughts.as_array().into_iter().flatten().filter_map(thought).collect();
    let calls = record.take("toolCalls");
    let calls: Vec<Value> = if let Value::Array(calls) = calls { calls } else { Vec::new() };
    let has_calls = !calls.is_empty();
    let parts = parts_of(record.take("content")).into_iter();
    // Versions with `toolCalls` may repeat the calls as parts.
    let parts = parts.filter(|part| !(has_calls && part.get("functionCall").is_some()));
    blocks.extend(parts.filter_map(pi_block));
    blocks.extend(calls.iter().filter_map(tool_call));
    let usage = record.fields.get("tokens").filter(|tokens| tokens.is_object()).map(usage);
    let model = record.text("model").map(str::to_owned);
    // An empty message is written before its content arrives, and stays if the request is cancelled.
    if !blocks.is_empty() {
        draft.add_reply(
            line,
            ImportedReply { blocks, model, usage, ..Default::default() },
            known_ms,
        );
    }
    for call in calls {
        add_result(draft, &call, known_ms);
    }
}

/// The ids of the calls with a result in a record.
pub(super) fn call_ids(fields: &Map<String, Value>) -> Vec<&str> {
    let calls = fields.get("toolCalls").and_then(Value::as_array);
    calls.into_iter().flatten().filter_map(|call| string(call, "id")).collect()
}

/// Puts the earlier text back into the results whose new text is another and starts with `mark`. Returns
/// their calls with the new texts.
pub(super) fn restore_results(
    known: &Map<String, Value>,
    newer: &mut Map<String, Value>,
    mark: &str,
) -> Vec<(String, String)> {
    let mut masked = Vec::new();
    let earlier = known.get("toolCalls").and_then(Value::as_array);
    let Some(calls) = newer.get_mut("toolCalls").and_then(Value::as_array_mut) else {
        return masked;
    };
    for call in calls {
        let Some(id) = string(call, "id").map(str::to_owned) else { continue };
        let Some(text) = result_text(call).filter(|text| text.starts_with(mark)) else { continue };
        let same = |call: &&Value| string(call, "id") == Some(&id);
        let original = earlier.and_then(|calls| calls.iter().find(same)?.get("result").cloned());
        let Some(original) = original.filter(|original| Some(original) != call.get("result"))
        else {
            continue;
        };
        if let Some(fields) = call.as_object_mut() {
            fields.insert("result".into(), original);
            masked.push((id, text));
        }
    }
    masked
}

/// The parts of a content: a string, a part, or a list of either.
fn parts_of(content: Value) -> Vec<Value> {
    let list = match content {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        other => vec![other],
    };
    let part = |part: Value| match part {
        Value::String(text) => block::text(text),
        other => other,
    };
    list.into_iter()
        .map(part)
        .filter(|part| part.get("text").is_none_or(|text| text != ""))
        .collect()
}

/// Converts a part to Pi's form; types unknown to Pi are kept as they are.
fn pi_block(part: Value) -> Option<Value> {
    if let Some(text) = string(&part, "text") {
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        let signature = string(&part, "thoughtSignature");
        return Some(if is_thought { block::thinking(text, signature) } else { block::text(text) });
    }
    if let Some(call) = part.get("functionCall") {
        return tool_call(call);
    }
    let inline = part
        .get("inlineData")
        .and_then(|data| Some(block::image(string(data, "mimeType")?, string(data, "data")?)));
    inline.or_else(|| part.is_object().then_some(part))
}

fn thought(written: &Value) -> Option<Value> {
    let texts = ["subject", "description"].map(|name| string(written, name).unwrap_or_default());
    let text = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then(|| block::thinking(&text, None))
}

fn tool_call(written: &Value) -> Option<Value> {
    let name = string(written, "name")?;
    let id = string(written, "id").unwrap_or(name);
    Some(block::tool_call(id, name, written.get("args").cloned().unwrap_or_default()))
}

/// Adds the result of a call, if there is one.
fn add_result(draft: &mut ImportDraft, call: &Value, known_ms: Option<i64>) {
    let Some(text) = result_text(call) else { return };
    let Some(name) = string(call, "name") else { return };
    let call_id = string(call, "id").unwrap_or(name).to_owned();
    let is_error = matches!(string(call, "status"), Some("error" | "cancelled"));
    let content = vec![block::text(text)];
    let result = ImportedResult { call_id, tool: Some(name.to_owned()), content, is_error };
    draft.add_result(result, known_ms);
}

/// The text of the result of a call: parts with a response, or what was shown.
fn result_text(call: &Value) -> Option<String> {
    let parts = parts_of(call.get("result").cloned().unwrap_or_default());
    let texts = parts.iter().map(|part| match part.get("functionResponse") {
        Some(response) => response_text(response),
        None => joined_text(&Value::Array(vec![part.clone()])),
    });
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    if texts.is_empty() {
        return string(call, "resultDisplay").map(str::to_owned);
    }
    Some(texts.join("\n"))
}

fn response_text(response: &Value) -> String {
    let inner = response.get("response").unwrap_or(&Value::Null);
    let text = ["output", "error", "content"].iter().find_map(|name| string(inner, name));
    text.map_or_else(
        || if inner.is_null() { String::new() } else { inner.to_string() },
        str::to_owned,
    )
}

/// Adds a result that is a part of a user message, unless the call has one.
fn add_response(draft: &mut ImportDraft, part: Value, known_ms: Option<i64>) {
    let Some(response) = part.get("functionResponse") else { return };
    let Some(name) = string(response, "name").or_else(|| string(response, "id")) else { return };
    let call_id = string(response, "id").unwrap_or(name).to_owned();
    if draft.has_result(&call_id) {
        return;
    }
    let is_error = response.get("response").is_some_and(|inner| inner.get("error").is_some());
    let content = vec![block::text(response_text(response))];
    let result = ImportedResult { call_id, tool: Some(name.to_owned()), content, is_error };
    draft.add_result(result, known_ms);
}

fn usage(written: &Value) -> Value {
    let cache_read_tokens = tokens(written, "cached");
    let usage = ReplyUsage {
        input_tokens: tokens(written, "input").saturating_sub(cache_read_tokens),
        output_tokens: tokens(written, "output").saturating_add(tokens(written, "thoughts")),
        cache_read_tokens,
        cache_write_tokens: 0,
    };
    usage.to_value()
}
