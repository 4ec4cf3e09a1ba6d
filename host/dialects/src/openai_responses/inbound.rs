//! OpenAI's Responses API as clients speak it.
//!
//! An answer of the model is a run of items: reasoning, messages, calls. Each run is one entry.

mod edit;
mod input;

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::API;
use crate::inbound::{
    InboundDialect, InboundError, ItemEdit, ItemGroup, LoweredBody, ParseContext, ParsedBody,
    ParsedEntry, ToolNames, assistant_entry, inline_image, invalid_request, is_true, list_span,
    object_item, optional_count, optional_text, output_limit, parse_content, raw_fields,
    result_entry, split_instructions, user_entry,
};
use crate::json::{parse_object, parse_or_string, string, take, take_text, text, text_of};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};
use input::InputField;

/// `POST /v1/responses` and `/v1/responses/compact`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponsesInbound;

#[derive(Deserialize)]
struct ResponsesBody<'a> {
    #[serde(borrow, default)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "optional_text")]
    model: Cow<'a, str>,
    #[serde(default, deserialize_with = "is_true")]
    stream: bool,
    #[serde(default, deserialize_with = "optional_count")]
    max_output_tokens: Option<u64>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: InputField<'a>,
}

/// The kind of an item, by its type and role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    /// A user message.
    User,
    /// A system or developer message.
    Instruction,
    /// Part of an answer.
    Answer,
    /// A tool result.
    Result,
    /// A reference to an item stored by the server.
    Reference,
    /// No part of the conversation: a trigger, an item of a newer API.
    Other,
}

impl InboundDialect for OpenAiResponsesInbound {
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: ResponsesBody<'a> = serde_json::from_str(json).map_err(invalid_request)?;
        // A history stored by the server cannot be shortened here, so such a request has no items.
        let is_stored = wire.previous_response_id.or(wire.conversation).is_some()
            || wire.input.items.iter().any(|item| is_reference(item.get()));
        let input = if is_stored { Vec::new() } else { wire.input.items };
        let is_instruction = |item: &str| {
            parse_object(item).is_ok_and(|item| kind_of(&item) == ItemKind::Instruction)
        };
        let (leading, items) = split_instructions(&input, is_instruction);
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream,
            max_output_tokens: wire.max_output_tokens,
            session_hint: wire.prompt_cache_key.map(RawValue::get),
            prompt_parts: raw_fields([wire.instructions, wire.tools]).chain(leading).collect(),
            items_span: list_span(json, &items),
            items,
        })
    }

    fn parse_items(
        &self,
        items: &mut dyn Iterator<Item = Result<Value, InboundError>>,
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut tools = ToolNames::new(before);
        let mut groups: Vec<ItemGroup> = Vec::new();
        let mut is_start = before.is_start;
        let mut is_in_answer = false;
        for (number, item) in items.enumerate() {
            let mut item = object_item(number, item)?;
            let kind = kind_of(&item);
            let entries = match kind {
                ItemKind::User => vec![user_entry(take_content(&mut item))],
                ItemKind::Instruction if is_start => Vec::new(),
                ItemKind::Instruction => vec![ParsedEntry::Note(text_of(item.get("content")))],
                ItemKind::Result => vec![parse_result(item, &tools)],
                ItemKind::Reference | ItemKind::Other => Vec::new(),
                ItemKind::Answer => {
                    let blocks = parse_answer_item(item);
                    tools.record(&blocks);
                    if let Some(group) = groups.last_mut().filter(|_| is_in_answer) {
                        extend_answer(group, blocks);
                        continue;
                    }
                    vec![assistant_entry(API, blocks)]
                }
            };
            is_in_answer = kind == ItemKind::Answer;
            is_start &= entries.is_empty();
            groups.push(ItemGroup::single(entries));
        }
        Ok(groups)
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower_numbers(json, &[&["max_output_tokens"]], limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        edit::edit_items(items, edits)
    }

    fn user_item(&self, text: &str) -> Value {
        let content = [json!({ "type": "input_text", "text": text })];
        json!({ "type": "message", "role": "user", "content": content })
    }

    /// The same items that Codex adds for interrupted calls.
    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value> {
        let kind = match type_of(&parse_object(call?).ok()?) {
            "function_call" | "local_shell_call" => "function_call_output",
            "custom_tool_call" => "custom_tool_call_output",
            "tool_search_call" => {
                return Some(json!({
                    "type": "tool_search_output", "call_id": call_id, "status": "completed",
                    "execution": "client", "tools": [],
                }));
            }
            _ => return None,
        };
        Some(json!({ "type": kind, "call_id": call_id, "output": text }))
    }

    fn item_call_id(&self, item: &str) -> Option<String> {
        let item = parse_object(item).ok()?;
        let id = call_id_of(&item).filter(|_| type_of(&item).ends_with("_call"))?;
        Some(id.to_owned())
    }
}

/// The type of an item; messages may omit it.
fn type_of(item: &Value) -> &str {
    let given = item.get("type").and_then(Value::as_str);
    given.unwrap_or(if item.get("role").is_some() { "message" } else { "" })
}

/// The id of the call that an item makes or answers; `None` for tools that the provider runs.
fn call_id_of(item: &Value) -> Option<&str> {
    Some(text(item, "call_id")).filter(|id| !id.is_empty())
}

fn is_reference(item: &str) -> bool {
    // References are small. Larger items are not parsed only to find that out.
    const MAX_BYTES: usize = 1_024;
    let contains = |word: &str| memmem::find(item.as_bytes(), word.as_bytes()).is_some();
    item.len() <= MAX_BYTES
        && (contains("item_reference") || !contains("\"type\""))
        && parse_object(item).is_ok_and(|item| kind_of(&item) == ItemKind::Reference)
}

fn kind_of(item: &Value) -> ItemKind {
    match (type_of(item), item.get("role").and_then(Value::as_str)) {
        ("message", Some("user")) => ItemKind::User,
        ("message", Some("assistant")) | ("reasoning", _) => ItemKind::Answer,
        ("message", _) => ItemKind::Instruction,
        (other, _) if other.ends_with("_call") => ItemKind::Answer,
        // The output of a search that the provider ran is part of the answer.
        ("tool_search_output", _) if call_id_of(item).is_none() => ItemKind::Answer,
        ("tool_search_output", _) => ItemKind::Result,
        (other, _) if other.ends_with("_call_output") => ItemKind::Result,
        ("item_reference", _) => ItemKind::Reference,
        // A reference may omit its type.
        ("", _) if item.get("id").is_some() => ItemKind::Reference,
        _ => ItemKind::Other,
    }
}

fn take_content(item: &mut Value) -> Vec<ChatBlock> {
    parse_content(take(item, "content"), parse_part)
}

fn parse_part(mut part: Value) -> ChatBlock {
    if let Some(text) = take_text(&mut part, "text") {
        return ChatBlock::text(text);
    }
    let url = part.get("image_url").and_then(Value::as_str);
    url.and_then(inline_image).unwrap_or(ChatBlock::Other(part))
}

/// A tool result. One of an unknown call becomes a note: a result entry without a call would be
/// dropped as an orphan.
fn parse_result(mut item: Value, tools: &ToolNames<'_>) -> ParsedEntry {
    // The output of a local shell has its call's id as `id`.
    let id = call_id_of(&item).map_or_else(|| string(&item, "id"), str::to_owned);
    let Some(tool) = tools.find(&id) else { return ParsedEntry::Note(output_text(&item)) };
    let content = match item.get("output") {
        Some(Value::String(_) | Value::Array(_)) => {
            parse_content(take(&mut item, "output"), parse_part)
        }
        _ => vec![ChatBlock::text(output_text(&item))],
    };
    result_entry(id, tool, content, false)
}

/// The output of a tool as text.
fn output_text(item: &Value) -> String {
    match item.get("output").or_else(|| item.get("tools")) {
        Some(output @ (Value::String(_) | Value::Array(_))) => {
            let text = text_of(Some(output));
            if text.is_empty() { output.to_string() } else { text }
        }
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn parse_answer_item(mut item: Value) -> Vec<ChatBlock> {
    match type_of(&item) {
        "message" => take_content(&mut item),
        kind if kind.ends_with("_call") && call_id_of(&item).is_some() => {
            vec![ChatBlock::ToolCall(parse_call(&item))]
        }
        // No result follows what the provider's own tools did, so it is not a call here.
        _ => vec![ChatBlock::ProviderItem { api: API.into(), item }],
    }
}

fn parse_call(item: &Value) -> ToolCallBlock {
    let fields = ["arguments", "input", "action"];
    let arguments = match fields.into_iter().find_map(|field| item.get(field)) {
        Some(Value::String(text)) => parse_or_string(text.clone()),
        other => other.cloned().unwrap_or_default(),
    };
    let name = Some(text(item, "name")).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| type_of(item)).to_owned();
    ToolCallBlock::new(string(item, "call_id"), name, arguments)
}

fn extend_answer(group: &mut ItemGroup, blocks: Vec<ChatBlock>) {
    group.item_count += 1;
    if let Some(ParsedEntry::Message(ChatMessage::Assistant(answer))) = group.entries.last_mut() {
        answer.content.extend(blocks);
    }
}
