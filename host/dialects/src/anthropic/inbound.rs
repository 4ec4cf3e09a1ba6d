//! Anthropic's messages, as clients write them.

mod thinking;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::API;
use crate::inbound::{
    InboundDialect, InboundError, ItemEdit, ItemGroup, LoweredBody, ParseContext, ParsedBody,
    ParsedEntry, invalid_request, list_items, output_limit,
};
use crate::json::{string, text};
use crate::message::{AssistantMessage, ToolCallBlock, ToolResultMessage, UserMessage};
use crate::{ChatBlock, ChatMessage};

/// `POST /v1/messages` and `/v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnthropicInbound;

#[derive(Deserialize)]
struct AnthropicBody<'a> {
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model: Cow<'a, str>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct InboundMessage {
    role: String,
    content: Value,
}

impl InboundDialect for AnthropicInbound {
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: AnthropicBody<'a> =
            serde_json::from_str(json).map_err(|e| invalid_request(&e))?;
        let (items, list) = list_items(json, &wire.messages);
        let prompt = [wire.system, wire.tools].into_iter().flatten().map(RawValue::get).collect();
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream,
            max_output_tokens: wire.max_tokens,
            session_hint: wire.metadata.map(RawValue::get),
            prompt_parts: prompt,
            items,
            items_span: list,
        })
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower_anthropic(json, limit_tokens)
    }

    fn parse_items(
        &self,
        items: &[&str],
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut tools = HashMap::new();
        let mut units = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let message: InboundMessage = serde_json::from_str(item).map_err(|error| {
                InboundError::InvalidMessage { number, reason: error.to_string() }
            })?;
            let blocks = blocks_of(message.content);
            let said = match message.role.as_str() {
                "assistant" => vec![ParsedEntry::Message(parse_answer(&blocks, &mut tools))],
                "user" => parse_user_blocks(&blocks, &|id| {
                    tools.get(id).cloned().or_else(|| (before.tool_name_of)(id))
                }),
                _ => vec![ParsedEntry::Note(text_of(&blocks))],
            };
            units.push(ItemGroup { item_count: 1, entries: said });
        }
        Ok(units)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let read = |item: &&str| serde_json::from_str::<Map<String, Value>>(item).ok();
        let Some(mut message) = items.first().and_then(read) else { return Vec::new() };
        let blocks = blocks_of(message.remove("content").unwrap_or_default());
        let blocks = match message.get("role").and_then(Value::as_str) {
            Some("user") => edit_user_blocks(blocks, edits),
            Some("assistant") => edit_answer(blocks, edits.first()),
            _ => edit_blocks(blocks, edits.first().unwrap_or(&ItemEdit::Keep)),
        };
        if blocks.is_empty() {
            return Vec::new();
        }
        message.insert("content".into(), blocks.into());
        vec![message.into()]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "content": [{ "type": "text", "text": text }] })
    }

    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        let result = json!({
            "type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": true,
        });
        Some(json!({ "role": "user", "content": [result] }))
    }

    fn has_bound_thinking(&self) -> bool {
        true
    }

    fn strip_thinking(&self, mut item: Value) -> Option<Value> {
        let Some(Value::Array(blocks)) = item.get_mut("content") else { return Some(item) };
        let before = blocks.len();
        blocks.retain(|block| !is_thinking(block));
        let is_gone = blocks.is_empty() && before > 0;
        (!is_gone).then_some(item)
    }

    fn disable_thinking(&self, body: Vec<u8>) -> Vec<u8> {
        thinking::disable_thinking(&body).unwrap_or(body)
    }

    /// Roles take turns, and all results of an answer stand in one message.
    fn join_items(&self, first: &mut Value, second: Value) -> Option<Value> {
        if first.get("role") != second.get("role") {
            return Some(second);
        }
        // Taken and put back: thousands of results may be joined one by one.
        let content = |message: &mut Value| {
            let content = message.get_mut("content").map(Value::take);
            blocks_of(content.unwrap_or_default())
        };
        let (mut blocks, mut second) = (content(first), second);
        blocks.extend(content(&mut second));
        if let Some(message) = first.as_object_mut() {
            message.insert("content".into(), blocks.into());
        }
        None
    }
}

/// Blocks; a plain string is one block of text.
fn blocks_of(content: Value) -> Vec<Value> {
    match content {
        Value::Array(blocks) => blocks,
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn type_of(block: &Value) -> &str {
    text(block, "type")
}

fn text_of(blocks: &[Value]) -> String {
    let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// A message of the model; its calls are noted in `tools`.
fn parse_answer(blocks: &[Value], tools: &mut HashMap<String, String>) -> ChatMessage {
    let content: Vec<ChatBlock> = blocks.iter().map(parse_answer_block).collect();
    for block in &content {
        if let ChatBlock::ToolCall(call) = block {
            tools.insert(call.id.clone(), call.name.clone());
        }
    }
    ChatMessage::Assistant(AssistantMessage {
        content,
        api: API.into(),
        ..AssistantMessage::default()
    })
}

fn parse_answer_block(block: &Value) -> ChatBlock {
    match type_of(block) {
        "tool_use" => ChatBlock::ToolCall(ToolCallBlock {
            id: string(block, "id"),
            name: string(block, "name"),
            arguments: block.get("input").cloned().unwrap_or_default(),
            thought_signature: None,
        }),
        "thinking" => ChatBlock::Thinking {
            thinking: string(block, "thinking"),
            thinking_signature: Some(string(block, "signature")),
            redacted: false,
        },
        "redacted_thinking" => ChatBlock::Thinking {
            thinking: String::new(),
            thinking_signature: Some(string(block, "data")),
            redacted: true,
        },
        _ => parse_block(block),
    }
}

/// A block that a person or a tool may show.
fn parse_block(block: &Value) -> ChatBlock {
    let source = block.get("source");
    let data = source.and_then(|source| source.get("data")?.as_str());
    match (type_of(block), data) {
        ("text", _) => ChatBlock::text(string(block, "text")),
        ("image", Some(data)) => ChatBlock::Image {
            data: data.to_owned(),
            mime_type: source.map(|source| string(source, "media_type")).unwrap_or_default(),
        },
        _ => ChatBlock::Other(block.clone()),
    }
}

/// Results of tools, and then what the person says beside them.
fn parse_user_blocks(
    blocks: &[Value],
    tool_of: &dyn Fn(&str) -> Option<String>,
) -> Vec<ParsedEntry> {
    let results = blocks.iter().filter(|block| is_result(block));
    let mut said: Vec<ParsedEntry> = results.map(|block| parse_result(block, tool_of)).collect();
    let rest: Vec<ChatBlock> =
        blocks.iter().filter(|block| !is_result(block)).map(parse_block).collect();
    let is_beside = !said.is_empty();
    if is_beside && !rest.is_empty() && rest.iter().all(is_reminder) {
        said.push(ParsedEntry::Note(joined_texts(&rest)));
    } else if !rest.is_empty() || !is_beside {
        said.push(ParsedEntry::Message(ChatMessage::User(UserMessage {
            content: rest,
            timestamp: 0,
        })));
    }
    said
}

/// What Claude Code says by itself beside the results of tools: the turn of the person goes on.
const REMINDER: &str = "<system-reminder>";

fn is_reminder(content: &ChatBlock) -> bool {
    matches!(content, ChatBlock::Text { text, .. } if text.trim_start().starts_with(REMINDER))
}

fn joined_texts(contents: &[ChatBlock]) -> String {
    let texts = contents.iter().filter_map(|content| match content {
        ChatBlock::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn is_result(block: &Value) -> bool {
    type_of(block) == "tool_result"
}

fn parse_result(block: &Value, tool_of: &dyn Fn(&str) -> Option<String>) -> ParsedEntry {
    let id = string(block, "tool_use_id");
    let content = blocks_of(block.get("content").cloned().unwrap_or_default());
    ParsedEntry::Message(ChatMessage::ToolResult(ToolResultMessage {
        tool_name: tool_of(&id).unwrap_or_default(),
        tool_call_id: id,
        content: content.iter().map(parse_block).collect(),
        is_error: block.get("is_error").and_then(Value::as_bool).unwrap_or_default(),
        timestamp: 0,
    }))
}

/// Results take the edits in order; the last edit is that of everything else.
fn edit_user_blocks(blocks: Vec<Value>, edits: &[ItemEdit<'_>]) -> Vec<Value> {
    let (results, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    let rest_edit = edits.get(results.len()).unwrap_or(&ItemEdit::Keep).clone();
    let changed =
        results.into_iter().zip(edits).filter_map(|(block, edit)| edit_result(block, edit));
    let mut blocks: Vec<Value> = changed.collect();
    blocks.extend(edit_blocks(rest, &rest_edit));
    blocks
}

/// A result keeps its call, whatever its text.
fn edit_result(mut block: Value, edit: &ItemEdit<'_>) -> Option<Value> {
    let content: Value = match edit {
        ItemEdit::Keep => return Some(block),
        ItemEdit::Drop => return None,
        ItemEdit::ReplaceText(text) => text.clone().into_owned().into(),
        ItemEdit::ReplaceMessage(message) => {
            message.content().iter().filter_map(wire_block).collect()
        }
    };
    block.as_object_mut()?.insert("content".into(), content);
    Some(block)
}

fn edit_blocks(blocks: Vec<Value>, edit: &ItemEdit<'_>) -> Vec<Value> {
    match edit {
        ItemEdit::Keep => blocks,
        ItemEdit::Drop => Vec::new(),
        ItemEdit::ReplaceText(text) => vec![json!({ "type": "text", "text": text })],
        ItemEdit::ReplaceMessage(message) => {
            message.content().iter().filter_map(wire_block).collect()
        }
    }
}

fn edit_answer(blocks: Vec<Value>, edit: Option<&ItemEdit<'_>>) -> Vec<Value> {
    match edit {
        None | Some(ItemEdit::Keep) => blocks,
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) => replace_text(blocks, text),
        Some(ItemEdit::ReplaceMessage(message)) => replace_answer(blocks, message),
    }
}

/// Another text: calls stay.
fn replace_text(blocks: Vec<Value>, text: &str) -> Vec<Value> {
    let (thought, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_thinking);
    let calls = rest.into_iter().filter(|block| type_of(block) == "tool_use");
    let told = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
    after_thinking(thought, told.into_iter().chain(calls).collect())
}

/// Other words and calls.
fn replace_answer(blocks: Vec<Value>, message: &ChatMessage) -> Vec<Value> {
    let thought = blocks.into_iter().filter(is_thinking).collect();
    let written = message.content().iter().filter_map(wire_block);
    after_thinking(thought, written.filter(|block| !is_thinking(block)).collect())
}

/// The thinking stays as it came: a model that thinks refuses to go on from an answer that begins
/// without it, and from one whose thinking was touched.
fn after_thinking(thought: Vec<Value>, said: Vec<Value>) -> Vec<Value> {
    if said.is_empty() { said } else { thought.into_iter().chain(said).collect() }
}

fn is_thinking(block: &Value) -> bool {
    matches!(type_of(block), "thinking" | "redacted_thinking")
}

/// A block as it is sent; blank texts are refused.
fn wire_block(block: &ChatBlock) -> Option<Value> {
    Some(match block {
        ChatBlock::Text { text, .. } if text.trim().is_empty() => return None,
        ChatBlock::Text { text, .. } => json!({ "type": "text", "text": text }),
        ChatBlock::Thinking { thinking_signature, redacted: true, .. } => {
            json!({ "type": "redacted_thinking", "data": thinking_signature })
        }
        ChatBlock::Thinking { thinking, thinking_signature, .. } => {
            json!({ "type": "thinking", "thinking": thinking, "signature": thinking_signature })
        }
        ChatBlock::ToolCall(call) => {
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments })
        }
        ChatBlock::Image { data, mime_type } => {
            let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
            json!({ "type": "image", "source": source })
        }
        ChatBlock::ProviderItem { item, .. } | ChatBlock::Other(item) => item.clone(),
    })
}
