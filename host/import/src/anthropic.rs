//! Import of Anthropic API messages and blocks, which Claude Code records too.

use serde_json::Value;

use super::block::{self, ReplyUsage, joined_text, kind, string, tokens};
use super::chat::ChatDocument;
use super::draft::{ImportDraft, ImportedReply, ImportedResult};
use super::json_lines::JsonRecord;
use super::transcript::{ImportError, ImportFormat, ImportedTranscript};

pub(super) const PROVIDER: &str = "anthropic";
pub(super) const API: &str = "anthropic-messages";

/// Imports a list of messages, a request body, or one message per line.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let chat = ChatDocument::read(bytes);
    let mut draft = ImportDraft::new(ImportFormat::Anthropic, PROVIDER, API);
    draft.set_tools(chat.tools);
    if let Some(model) = chat.model {
        draft.set_model(&model);
    }
    let system = joined_text(&chat.system);
    if !system.is_empty() {
        draft.add_system(system, None);
    }
    for message in chat.messages {
        if let Some(message) = draft.accept(message) {
            add(&mut draft, message);
        }
    }
    draft.finish()
}

fn add(draft: &mut ImportDraft, mut message: JsonRecord) {
    let known_ms = message.timestamp_ms();
    let line = message.line;
    match message.text("role") {
        Some("user") => add_user(draft, line, message.take("content"), known_ms),
        Some("assistant") => {
            let reply = reply(draft, line, &mut Value::Object(message.fields));
            draft.add_reply(line, reply, known_ms);
        }
        Some("system") => draft.add_system(joined_text(&message.take("content")), known_ms),
        _ => draft.add_problem(line, "a message whose role is not user, assistant or system"),
    }
}

/// Adds a user message: first its tool results, then the rest as a message of the user.
pub(super) fn add_user(
    draft: &mut ImportDraft,
    line: u64,
    mut content: Value,
    known_ms: Option<i64>,
) {
    // The API requires results before text, so a result after a text is not newer than it.
    let mut results = Vec::new();
    if let Value::Array(blocks) = &mut content {
        results.extend(blocks.extract_if(.., |block| kind(block) == "tool_result"));
    }
    let holds_only_results = !results.is_empty() && content.as_array().is_some_and(Vec::is_empty);
    for result in results {
        add_result(draft, line, result, known_ms);
    }
    if !holds_only_results {
        let blocks = draft.convert_blocks(line, content, pi_block);
        draft.add_user(line, blocks, known_ms);
    }
}

fn add_result(draft: &mut ImportDraft, line: u64, mut result: Value, known_ms: Option<i64>) {
    let Some(call_id) = string(&result, "tool_use_id").map(str::to_owned) else {
        return draft.add_problem(line, "a tool result without a call id");
    };
    let is_error = result.get("is_error").and_then(Value::as_bool) == Some(true);
    let content = result.get_mut("content").map(Value::take).unwrap_or_default();
    let content = draft.convert_blocks(line, content, pi_block);
    draft.add_result(ImportedResult { call_id, tool: None, content, is_error }, known_ms);
}

/// The reply in an assistant message of the API.
pub(super) fn reply(draft: &mut ImportDraft, line: u64, message: &mut Value) -> ImportedReply {
    let content = message.get_mut("content").map(Value::take).unwrap_or_default();
    ImportedReply {
        blocks: draft.convert_blocks(line, content, pi_block),
        model: string(message, "model").map(str::to_owned),
        usage: message.get("usage").filter(|usage| usage.is_object()).map(usage),
        stop_reason: string(message, "stop_reason").map(stop_reason),
        error: None,
    }
}

fn usage(usage: &Value) -> Value {
    let usage = ReplyUsage {
        input_tokens: tokens(usage, "input_tokens"),
        output_tokens: tokens(usage, "output_tokens"),
        cache_read_tokens: tokens(usage, "cache_read_input_tokens"),
        cache_write_tokens: tokens(usage, "cache_creation_input_tokens"),
    };
    usage.to_value()
}

fn stop_reason(reason: &str) -> &'static str {
    match reason {
        "tool_use" => "toolUse",
        "max_tokens" | "model_context_window_exceeded" => "length",
        // Pi has no stop reason for it.
        "refusal" => "error",
        _ => "stop",
    }
}

/// Converts a block to Pi's form; types unknown to Pi are kept as they are.
fn pi_block(written: Value) -> Value {
    let known = match kind(&written) {
        "text" => string(&written, "text").map(block::text),
        "thinking" => string(&written, "thinking")
            .map(|thinking| block::thinking(thinking, string(&written, "signature"))),
        "redacted_thinking" => string(&written, "data").map(redacted),
        "tool_use" => call(&written),
        "image" => image(&written),
        _ => None,
    };
    known.unwrap_or(written)
}

fn redacted(data: &str) -> Value {
    let mut thinking = block::thinking("", Some(data));
    if let Some(fields) = thinking.as_object_mut() {
        fields.insert("redacted".into(), true.into());
    }
    thinking
}

fn call(written: &Value) -> Option<Value> {
    let input = written.get("input").cloned().unwrap_or_default();
    Some(block::tool_call(string(written, "id")?, string(written, "name")?, input))
}

fn image(written: &Value) -> Option<Value> {
    let source = written.get("source")?;
    match kind(source) {
        "base64" => Some(block::image(string(source, "media_type")?, string(source, "data")?)),
        "url" => string(source, "url").map(block::image_at),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
