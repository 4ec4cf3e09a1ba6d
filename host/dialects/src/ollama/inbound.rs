//! Ollama's own API as clients speak it.
//!
//! Calls and results may have ids.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::API;
use crate::inbound::{
    InboundDialect, InboundError, ItemCalls, ItemEdit, ItemGroup, LoweredBody, NamedCall,
    ParseContext, ParsedBody, ParsedCalls, ParsedEntry, ProviderEdits, assistant_entry, client_id,
    invalid_request, list_span, object_item, optional_count, optional_text, output_limit,
    raw_fields, result_entry, session_id, split_instructions, unknown_fields, user_entry,
};
use crate::json::{parse_object, remove, set, string, take, take_text, text, text_of};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};
use crate::openai_chat::detached_result;

/// `POST /api/chat`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OllamaInbound;

#[derive(Deserialize)]
struct OllamaBody<'a> {
    #[serde(borrow, default, deserialize_with = "optional_text")]
    model: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Option<&'a RawValue>,
    #[serde(default)]
    options: Option<OllamaOptions>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    format: Option<&'a RawValue>,
    // A request without messages loads the model.
    #[serde(borrow, default)]
    messages: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct OllamaOptions {
    #[serde(default, deserialize_with = "optional_count")]
    num_ctx: Option<u64>,
    #[serde(default, deserialize_with = "optional_count")]
    num_predict: Option<u64>,
}

#[derive(Deserialize)]
struct OllamaMessageHead {
    #[serde(default)]
    role: String,
}

impl InboundDialect for OllamaInbound {
    /// The system prompt is the leading run of system messages.
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: OllamaBody<'a> =
            serde_json::from_str(json).map_err(|error| invalid_request(&error, json))?;
        let (leading, items) =
            split_instructions(wire.messages.as_deref().unwrap_or_default(), is_instruction);
        let options = wire.options.as_ref();
        Ok(ParsedBody {
            model: wire.model,
            // Ollama streams unless a client declines.
            is_stream: wire.stream.is_none_or(|stream| stream.get() != "false"),
            max_output_tokens: options.and_then(|options| options.num_predict),
            window_tokens: options.and_then(|options| options.num_ctx).filter(|tokens| *tokens > 0),
            session_hint: None,
            prompt_parts: raw_fields([wire.tools, wire.format]).chain(leading).collect(),
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
        let mut is_start = before.is_start;
        let mut calls = ParsedCalls::new(before, read_calls);
        let group = |(number, item): (usize, Result<Value, InboundError>)| {
            let mut message = object_item(number, item)?;
            let entries = match text(&message, "role") {
                "system" if is_start => Vec::new(),
                "user" => vec![user_entry(take_content(&mut message))],
                "tool" => vec![parse_result(message, &mut calls)],
                "assistant" => {
                    let position = before.items.len() + number;
                    let answer = parse_answer(message, position);
                    calls.add_answer(&answer, position);
                    vec![assistant_entry(API, answer)]
                }
                "system" => vec![ParsedEntry::Instruction(text_of(message.get("content")))],
                _ => vec![ParsedEntry::Note(text_of(message.get("content")))],
            };
            is_start &= entries.is_empty();
            Ok(ItemGroup::single(entries))
        };
        items.enumerate().map(group).collect()
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower(json, &[&["options", "num_predict"]], limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let message = items.first().and_then(|item| parse_object(item).ok());
        let (Some(mut message), Some(edit)) = (message, edits.first()) else { return Vec::new() };
        match edit {
            ItemEdit::Drop => return Vec::new(),
            ItemEdit::Keep => {}
            ItemEdit::ReplaceText(text) => {
                remove(&mut message, "thinking");
                set(&mut message, "content", text.as_ref());
            }
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
        let mut result = json!({ "role": "tool", "tool_name": tool, "content": text });
        if !client_id(call_id).is_empty() {
            set(&mut result, "tool_call_id", call_id);
        }
        Some(result)
    }

    fn detached_item(&self, before: Option<&Value>, item: &Value) -> Option<Value> {
        detached_result(before, item)
    }
}

fn read_calls(message: Value, position: usize) -> ItemCalls {
    match text(&message, "role") {
        "assistant" => ItemCalls::of_answer(&parse_answer(message, position)),
        "tool" => ItemCalls::Results(vec![call_of_result(&message)]),
        _ => ItemCalls::Other,
    }
}

/// What a result says of its call; older clients write `name`.
fn call_of_result(message: &Value) -> NamedCall {
    let name = match text(message, "tool_name") {
        "" => text(message, "name"),
        name => name,
    };
    NamedCall { id: string(message, "tool_call_id"), name: name.to_owned() }
}

fn is_instruction(item: &str) -> bool {
    let head: Option<OllamaMessageHead> = serde_json::from_str(item).ok();
    head.is_some_and(|head| head.role == "system")
}

/// The text of a message and its images.
fn take_content(message: &mut Value) -> Vec<ChatBlock> {
    let content = take_text(message, "content").filter(|text| !text.is_empty());
    let Value::Array(images) = take(message, "images") else {
        return content.map(ChatBlock::text).into_iter().collect();
    };
    let image = |image: Value| match image {
        Value::String(data) => ChatBlock::Image { mime_type: mime_type(&data).to_owned(), data },
        other => ChatBlock::Other(other),
    };
    content.map(ChatBlock::text).into_iter().chain(images.into_iter().map(image)).collect()
}

/// The type of an image, by the first bytes of its base64.
fn mime_type(data: &str) -> &'static str {
    let types = [("/9j/", "image/jpeg"), ("R0lG", "image/gif"), ("UklGR", "image/webp")];
    let known = types.into_iter().find(|(start, _)| data.starts_with(start));
    known.map_or("image/png", |(_, mime_type)| mime_type)
}

fn parse_answer(mut message: Value, position: usize) -> Vec<ChatBlock> {
    let thinking = take_text(&mut message, "thinking").filter(|text| !text.is_empty());
    let content = take_content(&mut message);
    let calls = match take(&mut message, "tool_calls") {
        Value::Array(calls) => calls,
        _ => Vec::new(),
    };
    let calls = calls.into_iter().enumerate().map(|(nth, mut wire)| {
        let id = session_id(text(&wire, "id"), position, nth);
        let mut function = take(&mut wire, "function");
        let name = take_text(&mut function, "name").unwrap_or_default();
        ChatBlock::ToolCall(ToolCallBlock::new(id, name, take(&mut function, "arguments")))
    });
    let thinking = thinking.map(|thinking| ChatBlock::thinking(thinking, None));
    let rest = unknown_fields(API, message, &["role"]);
    thinking.into_iter().chain(content).chain(calls).chain(rest).collect()
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

fn replace_message(message: &mut Value, other: &ChatMessage) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for block in other.content() {
        match block {
            ChatBlock::Text { text: part, .. } => texts.push(part.as_str()),
            ChatBlock::Image { data, .. } => images.push(Value::from(data.as_str())),
            _ => {}
        }
    }
    set(message, "content", texts.join("\n"));
    if message.get("images").is_some() {
        set(message, "images", images);
    }
    let (ChatMessage::Assistant(answer), Some(Value::Array(calls))) =
        (other, message.get_mut("tool_calls"))
    else {
        return;
    };
    // A call without an id is known by its name and its place.
    let mut kept = answer.tool_calls().peekable();
    calls.retain_mut(|wire| {
        let Some(function) = wire.get_mut("function").filter(|function| function.is_object())
        else {
            return true;
        };
        let call = kept.next_if(|call| text(function, "name") == call.name);
        call.is_some_and(|call| {
            set(function, "arguments", call.arguments.clone());
            true
        })
    });
}
