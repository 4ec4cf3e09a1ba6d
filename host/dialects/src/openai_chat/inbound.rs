//! OpenAI's chat completions as clients speak them.
//!
//! Many local servers do without call ids. `function_call` and messages of the role `function`, the form that preceded
//! `tool_calls`, have none either: see `legacy_call`.

mod legacy_call;

use std::borrow::Cow;

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::API;
use super::alternation::{THINKING_FIELDS, join_messages};
use crate::blocks::data_url;
use crate::inbound::{
    InboundDialect, InboundError, ItemCalls, ItemEdit, ItemGroup, LoweredBody, NamedCall,
    ParseContext, ParsedBody, ParsedCalls, ParsedEntry, ProviderEdits, assistant_entry, client_id,
    inline_image, invalid_request, is_true, list_span, object_item, optional_count, optional_text,
    output_limit, parse_content, raw_fields, result_entry, session_id, split_instructions,
    unknown_fields, user_entry,
};
use crate::json::{
    parse_object, parse_or_string, remove, set, string, take, take_text, text, text_of,
    text_or_json,
};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};

/// `POST /v1/chat/completions`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChatInbound;

#[derive(Deserialize)]
struct ChatRequestBody<'a> {
    #[serde(borrow, default)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "optional_text")]
    model: Cow<'a, str>,
    #[serde(default, deserialize_with = "is_true")]
    stream: bool,
    #[serde(default, deserialize_with = "optional_count")]
    max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "optional_count")]
    max_completion_tokens: Option<u64>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    functions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response_format: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

/// The field of a message that marks instructions.
#[derive(Deserialize)]
struct MessageHead {
    #[serde(default)]
    role: String,
}

impl InboundDialect for OpenAiChatInbound {
    /// The system prompt is the leading run of system messages.
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: ChatRequestBody<'a> =
            serde_json::from_str(json).map_err(|error| invalid_request(&error, json))?;
        let (leading, items) = split_instructions(&wire.messages, is_instruction);
        let fields = raw_fields([wire.tools, wire.functions, wire.response_format]);
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream,
            // The newer field wins if a client sends both.
            max_output_tokens: wire.max_completion_tokens.or(wire.max_tokens),
            window_tokens: None,
            session_hint: wire.prompt_cache_key.map(RawValue::get),
            prompt_parts: fields.chain(leading).collect(),
            provider_edits: ProviderEdits::default(),
            ignored_items: Vec::new(),
            items_span: list_span(json, &items),
            items,
        })
    }

    fn parse_items(
        &self,
        items: &mut dyn Iterator<Item = Result<Value, InboundError>>,
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut calls = ParsedCalls::new(before, read_calls);
        let mut is_start = before.is_start;
        let group = |(number, item): (usize, Result<Value, InboundError>)| {
            let mut message = object_item(number, item)?;
            let entries = match text(&message, "role") {
                "system" | "developer" if is_start => Vec::new(),
                "user" => vec![user_entry(take_content(&mut message))],
                "tool" | "function" => vec![parse_result(message, &mut calls)],
                "assistant" => {
                    let position = before.items.len() + number;
                    let answer = parse_answer(message, position);
                    calls.add_answer(&answer, position);
                    vec![assistant_entry(API, answer)]
                }
                "system" | "developer" => {
                    vec![ParsedEntry::Instruction(text_of(message.get("content")))]
                }
                _ => vec![ParsedEntry::Note(text_of(message.get("content")))],
            };
            is_start &= entries.is_empty();
            Ok(ItemGroup::single(entries))
        };
        items.enumerate().map(group).collect()
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        const PATHS: [&[&str]; 4] = [
            &["max_completion_tokens"],
            &["max_tokens"],
            // llama.cpp and Ollama accept fields of their own beside OpenAI's.
            &["n_predict"],
            &["options", "num_predict"],
        ];
        output_limit::lower(json, &PATHS, limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let message = items.first().and_then(|item| parse_object(item).ok());
        let (Some(mut message), Some(edit)) = (message, edits.first()) else { return Vec::new() };
        match edit {
            ItemEdit::Drop => return Vec::new(),
            ItemEdit::Keep => {}
            ItemEdit::ReplaceText(text) => replace_text(&mut message, text),
            ItemEdit::ReplaceMessage(other) => replace_message(&mut message, other),
        }
        vec![message]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn assistant_item(&self, text: &str) -> Value {
        json!({ "role": "assistant", "content": text })
    }

    fn missing_result_item(
        &self,
        call_id: &str,
        tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        if legacy_call::is_legacy_id(call_id) {
            return Some(json!({ "role": "function", "name": tool, "content": text }));
        }
        let mut result =
            json!({ "role": "tool", "tool_call_id": client_id(call_id), "content": text });
        if client_id(call_id).is_empty() {
            set(&mut result, "name", tool);
        }
        Some(result)
    }

    fn detached_item(&self, before: Option<&Value>, item: &Value) -> Option<Value> {
        detached_result(before, item)
    }

    /// User and assistant alternate, as many chat templates require.
    fn join_items(&self, first: &mut Value, second: Value) -> Option<Value> {
        join_messages(first, second)
    }
}

/// A result as a message of the user, unless it can follow `before`.
pub(crate) fn detached_result(before: Option<&Value>, item: &Value) -> Option<Value> {
    let is_result = |message: &Value| matches!(text(message, "role"), "tool" | "function");
    let has_calls = |message: &Value| {
        ["tool_calls", "function_call"].iter().any(|field| message.get(field).is_some())
    };
    if !is_result(item) || before.is_some_and(|before| is_result(before) || has_calls(before)) {
        return None;
    }
    let content = item.get("content").cloned().unwrap_or_else(|| Value::from(""));
    Some(json!({ "role": "user", "content": content }))
}

fn read_calls(message: Value, position: usize) -> ItemCalls {
    match text(&message, "role") {
        "assistant" => ItemCalls::of_answer(&parse_answer(message, position)),
        "tool" | "function" => ItemCalls::Results(vec![call_of_result(&message)]),
        _ => ItemCalls::Other,
    }
}

fn call_of_result(message: &Value) -> NamedCall {
    NamedCall { id: string(message, "tool_call_id"), name: string(message, "name") }
}

fn is_instruction(item: &str) -> bool {
    let head: Option<MessageHead> = serde_json::from_str(item).ok();
    head.is_some_and(|head| matches!(head.role.as_str(), "system" | "developer"))
}

fn take_content(message: &mut Value) -> Vec<ChatBlock> {
    parse_content(take(message, "content"), parse_part)
}

fn parse_part(mut part: Value) -> ChatBlock {
    if let Some(text) = take_text(&mut part, "text") {
        return ChatBlock::text(text);
    }
    let url = part.pointer("/image_url/url").and_then(Value::as_str);
    url.and_then(inline_image).unwrap_or(ChatBlock::Other(part))
}

/// A tool result; one of an unknown call becomes a note.
fn parse_result(mut message: Value, calls: &mut ParsedCalls<'_>) -> ParsedEntry {
    let NamedCall { id, name } = call_of_result(&message);
    match calls.answered_by(&id, &name) {
        Some(call) => result_entry(call.id, call.name, take_content(&mut message), false),
        // A result entry without a call would be dropped as an orphan.
        None => ParsedEntry::Note(text_of(message.get("content"))),
    }
}

fn parse_answer(mut message: Value, position: usize) -> Vec<ChatBlock> {
    let thinking = take_text(&mut message, "reasoning_content").unwrap_or_default();
    let thinking = (!thinking.is_empty()).then(|| ChatBlock::thinking(thinking, None));
    let content = take_content(&mut message);
    // Before the list is taken: a message has calls in one form only.
    let legacy_call = legacy_call::take_call(&mut message, position);
    let calls = match take(&mut message, "tool_calls") {
        Value::Array(calls) => calls,
        _ => Vec::new(),
    };
    let calls = calls.into_iter().enumerate();
    let calls = calls.map(|(nth, call)| parse_call(call, position, nth)).chain(legacy_call);
    let rest = unknown_fields(API, message, &["role", "name"]);
    thinking.into_iter().chain(content).chain(calls).chain(rest).collect()
}

fn parse_call(mut wire: Value, position: usize, nth: usize) -> ChatBlock {
    if ["id", "function", "custom"].iter().all(|field| wire.get(field).is_none()) {
        return ChatBlock::ProviderItem { api: API.into(), item: wire };
    }
    let is_function = wire.get("function").is_some();
    let (tool, field) = if is_function { ("function", "arguments") } else { ("custom", "input") };
    let mut tool = take(&mut wire, tool);
    let mut take_string = |field| take_text(&mut tool, field).unwrap_or_default();
    // Models write arguments that are not JSON; such text is kept, since it takes space as well.
    let (name, arguments) = (take_string("name"), parse_or_string(take_string(field)));
    let id = session_id(text(&wire, "id"), position, nth);
    ChatBlock::ToolCall(ToolCallBlock::new(id, name, arguments))
}

/// Another text for a message: calls stay, thinking is dropped.
fn replace_text(message: &mut Value, text: &str) {
    for field in THINKING_FIELDS {
        remove(message, field);
    }
    let has_calls =
        ["tool_calls", "function_call"].iter().any(|field| message.get(field).is_some());
    let is_null = has_calls && text.trim().is_empty();
    set(message, "content", if is_null { Value::Null } else { text.into() });
}

fn replace_message(message: &mut Value, other: &ChatMessage) {
    let parts: Vec<Value> = other.content().iter().filter_map(wire_part).collect();
    let is_text = parts.iter().all(|part| part.get("text").is_some());
    set(
        message,
        "content",
        match (is_text, parts.is_empty()) {
            (_, true) => Value::Null,
            (true, _) => text_of(Some(&parts.into())).into(),
            (false, _) => parts.into(),
        },
    );
    let ChatMessage::Assistant(answer) = other else { return };
    legacy_call::replace_call(message, answer);
    let Some(Value::Array(calls)) = message.get_mut("tool_calls") else { return };
    let mut kept = OpenCalls::default();
    kept.open(answer.tool_calls().map(|call| (client_id(&call.id).to_owned(), call)));
    calls.retain_mut(|wire| {
        let id = string(wire, "id");
        // Older sessions have no calls without ids.
        let is_unknown = || id.is_empty();
        kept.take(&id).map_or_else(is_unknown, |call| set_arguments(wire, &call.arguments))
    });
}

/// Replaces the arguments of a call; false if it has neither a function nor a custom tool.
fn set_arguments(wire: &mut Value, arguments: &Value) -> bool {
    let mut set_field = |kind: &str, field: &str| {
        let tool = wire.get_mut(kind).filter(|tool| tool.is_object());
        tool.map(|tool| set(tool, field, text_or_json(arguments))).is_some()
    };
    set_field("function", "arguments") || set_field("custom", "input")
}

/// A part of a content; calls and thinking have fields of their own.
fn wire_part(block: &ChatBlock) -> Option<Value> {
    match block {
        ChatBlock::Text { text, .. } => Some(json!({ "type": "text", "text": text })),
        ChatBlock::Image { data, mime_type } => {
            let url = data_url(mime_type, data);
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        ChatBlock::Other(part) => Some(part.clone()),
        ChatBlock::ToolCall(_) | ChatBlock::Thinking { .. } | ChatBlock::ProviderItem { .. } => {
            None
        }
    }
}
