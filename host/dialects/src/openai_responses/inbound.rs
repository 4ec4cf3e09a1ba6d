//! OpenAI's responses, as clients write them.
//!
//! One answer of the model is a run of items here: reasoning, words, calls. A run is one entry.

mod edit;
mod input;

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::API;
use crate::inbound::{
    InboundDialect, InboundError, ItemEdit, ItemGroup, LoweredBody, ParseContext, ParsedBody,
    ParsedEntry, invalid_request, output_limit, split_instructions,
};
use crate::json::text_of;
use crate::message::{AssistantMessage, ToolCallBlock, ToolResultMessage, UserMessage};
use crate::{ChatBlock, ChatMessage};
use input::InputField;

/// `POST /v1/responses` and `/v1/responses/compact`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponsesInbound;

#[derive(Deserialize)]
struct ResponsesBody<'a> {
    #[serde(borrow, default)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model: Cow<'a, str>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
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

/// What an item is, by its type and role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    /// Of the person.
    User,
    /// Of the client, in nobody's place.
    Instruction,
    /// Part of an answer.
    Answer,
    /// What a tool answered.
    Result,
    /// The name of an item that a server keeps.
    Reference,
    /// Nothing that is said: a trigger, an item of a newer API.
    Other,
}

impl InboundDialect for OpenAiResponsesInbound {
    /// Input that is one string is a request of one message, which no engine could shorten. Of what a
    /// server keeps (`previous_response_id`, `conversation`, `item_reference`) nobody here knows the words.
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: ResponsesBody<'a> =
            serde_json::from_str(json).map_err(|e| invalid_request(&e))?;
        let is_kept_elsewhere = wire.previous_response_id.or(wire.conversation).is_some();
        let is_reference = |item: &&RawValue| is_reference(item.get());
        let is_kept_elsewhere = is_kept_elsewhere || wire.input.items.iter().any(is_reference);
        let input = if is_kept_elsewhere { Vec::new() } else { wire.input.items };
        let is_instruction =
            |item: &str| parse_item(item).is_some_and(|i| item_kind(&i) == ItemKind::Instruction);
        let (leading, items, list) = split_instructions(json, &input, is_instruction);
        let fields = [wire.instructions, wire.tools].into_iter().flatten().map(RawValue::get);
        let prompt = fields.chain(leading).collect();
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream.unwrap_or_default(),
            max_output_tokens: wire.max_output_tokens,
            session_hint: wire.prompt_cache_key.map(RawValue::get),
            prompt_parts: prompt,
            items,
            items_span: list,
        })
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower_numbers(json, &[&["max_output_tokens"]], limit_tokens)
    }

    fn parse_items(
        &self,
        items: &[&str],
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut tools = HashMap::new();
        let mut units: Vec<ItemGroup> = Vec::new();
        let mut is_begin = before.is_start;
        let mut answers = false;
        for (number, item) in items.iter().enumerate() {
            let item: Map<String, Value> = serde_json::from_str(item).map_err(|error| {
                InboundError::InvalidMessage { number, reason: error.to_string() }
            })?;
            let sort = item_kind(&item);
            let tool_of = |id: &str| tools.get(id).cloned().or_else(|| (before.tool_name_of)(id));
            let said = match sort {
                ItemKind::User => vec![ParsedEntry::Message(user_entry(&item))],
                ItemKind::Instruction if is_begin => Vec::new(),
                ItemKind::Instruction => vec![ParsedEntry::Note(text_of(item.get("content")))],
                ItemKind::Result => vec![parse_result(&item, &tool_of)],
                ItemKind::Reference | ItemKind::Other => Vec::new(),
                ItemKind::Answer => {
                    let block = parse_block(&item, &mut tools);
                    match units.last_mut().filter(|_| answers) {
                        Some(unit) => extend_answer(unit, block),
                        None => units
                            .push(ItemGroup { item_count: 1, entries: vec![start_answer(block)] }),
                    }
                    (answers, is_begin) = (true, false);
                    continue;
                }
            };
            answers = false;
            is_begin &= said.is_empty();
            units.push(ItemGroup { item_count: 1, entries: said });
        }
        Ok(units)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        edit::edit_items(items, edits)
    }

    fn user_item(&self, text: &str) -> Value {
        let content = [json!({ "type": "input_text", "text": text })];
        json!({ "type": "message", "role": "user", "content": content })
    }

    /// Codex does the same for calls that were broken off.
    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value> {
        let kind = match type_of(&parse_item(call?)?) {
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

    /// Items of one role may follow each other.
    fn item_call_id(&self, item: &str) -> Option<String> {
        let item = parse_item(item)?;
        let id = call_id_of(&item).filter(|_| type_of(&item).ends_with("_call"))?;
        Some(id.to_owned())
    }

    fn join_items(&self, _first: &mut Value, second: Value) -> Option<Value> {
        Some(second)
    }
}

fn parse_item(item: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(item).ok()
}

fn string(item: &Map<String, Value>, key: &str) -> String {
    item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A message may leave its type out.
fn type_of(item: &Map<String, Value>) -> &str {
    let named = item.get("type").and_then(Value::as_str);
    named.unwrap_or(if item.contains_key("role") { "message" } else { "" })
}

/// The call that an item asks for or answers; `None` where a provider's own tool did it.
fn call_id_of(item: &Map<String, Value>) -> Option<&str> {
    item.get("call_id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// A reference holds little more than a name; its type may be left out.
fn is_reference(item: &str) -> bool {
    const LONGEST_BYTES: usize = 1_024;
    let says = |word: &str| memmem::find(item.as_bytes(), word.as_bytes()).is_some();
    item.len() <= LONGEST_BYTES
        && (says("item_reference") || !says("\"type\""))
        && parse_item(item).is_some_and(|item| item_kind(&item) == ItemKind::Reference)
}

fn item_kind(item: &Map<String, Value>) -> ItemKind {
    match (type_of(item), item.get("role").and_then(Value::as_str)) {
        ("message", Some("user")) => ItemKind::User,
        ("message", Some("assistant")) | ("reasoning", _) => ItemKind::Answer,
        ("message", _) => ItemKind::Instruction,
        (other, _) if other.ends_with("_call") => ItemKind::Answer,
        // What a provider's own search has found is part of the answer.
        ("tool_search_output", _) if call_id_of(item).is_none() => ItemKind::Answer,
        ("tool_search_output", _) => ItemKind::Result,
        (other, _) if other.ends_with("_call_output") => ItemKind::Result,
        ("item_reference", _) => ItemKind::Reference,
        ("", _) if item.contains_key("id") => ItemKind::Reference,
        _ => ItemKind::Other,
    }
}

fn parse_content(content: Option<&Value>) -> Vec<ChatBlock> {
    match content {
        Some(Value::Array(parts)) => parts.iter().map(parse_part).collect(),
        Some(Value::String(text)) => vec![ChatBlock::text(text.clone())],
        _ => Vec::new(),
    }
}

fn parse_part(part: &Value) -> ChatBlock {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return ChatBlock::text(text);
    }
    let url = part.get("image_url").and_then(Value::as_str);
    let inline = url.and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    match inline {
        Some((mime_type, data)) => {
            ChatBlock::Image { data: data.to_owned(), mime_type: mime_type.to_owned() }
        }
        None => ChatBlock::Other(part.clone()),
    }
}

fn user_entry(item: &Map<String, Value>) -> ChatMessage {
    let content = parse_content(item.get("content"));
    ChatMessage::User(UserMessage { content, timestamp: 0 })
}

/// A result. One whose call nobody can tell is a note: the law would leave a result without a call out.
fn parse_result(
    item: &Map<String, Value>,
    tool_of: &dyn Fn(&str) -> Option<String>,
) -> ParsedEntry {
    // A local shell's output has the name of its call as its own.
    let id = call_id_of(item).map_or_else(|| string(item, "id"), str::to_owned);
    let Some(tool_name) = tool_of(&id) else { return ParsedEntry::Note(output_text(item)) };
    let content = match item.get("output") {
        Some(Value::String(_) | Value::Array(_)) => parse_content(item.get("output")),
        _ => vec![ChatBlock::text(output_text(item))],
    };
    ParsedEntry::Message(ChatMessage::ToolResult(ToolResultMessage {
        tool_name,
        tool_call_id: id,
        content,
        is_error: false,
        timestamp: 0,
    }))
}

/// What a tool answered, as text.
fn output_text(item: &Map<String, Value>) -> String {
    match item.get("output").or_else(|| item.get("tools")) {
        Some(output @ (Value::String(_) | Value::Array(_))) => {
            let text = text_of(Some(output));
            if text.is_empty() { output.to_string() } else { text }
        }
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// One item of an answer. A call that waits for a result is one; what the provider's own tools did
/// is not, since no result follows it.
fn parse_block(item: &Map<String, Value>, tools: &mut HashMap<String, String>) -> Vec<ChatBlock> {
    let kind = type_of(item);
    let own = || ChatBlock::ProviderItem { api: API.into(), item: Value::Object(item.clone()) };
    match kind {
        "message" => parse_content(item.get("content")),
        _ if kind.ends_with("_call") && call_id_of(item).is_some() => {
            let call = parse_call(item);
            tools.insert(call.id.clone(), call.name.clone());
            vec![ChatBlock::ToolCall(call)]
        }
        _ => vec![own()],
    }
}

fn parse_call(item: &Map<String, Value>) -> ToolCallBlock {
    let written = item.get("arguments").or_else(|| item.get("input"));
    let arguments = match written.or_else(|| item.get("action")) {
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(other) => other.clone(),
        None => Value::Null,
    };
    let named = string(item, "name");
    let name = if named.is_empty() { type_of(item).to_owned() } else { named };
    ToolCallBlock { id: string(item, "call_id"), name, arguments, thought_signature: None }
}

fn start_answer(content: Vec<ChatBlock>) -> ParsedEntry {
    ParsedEntry::Message(ChatMessage::Assistant(AssistantMessage {
        content,
        api: API.into(),
        ..AssistantMessage::default()
    }))
}

fn extend_answer(unit: &mut ItemGroup, block: Vec<ChatBlock>) {
    unit.item_count += 1;
    if let Some(ParsedEntry::Message(ChatMessage::Assistant(answer))) = unit.entries.last_mut() {
        answer.content.extend(block);
    }
}
