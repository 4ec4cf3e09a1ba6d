//! Anthropic's Messages API as clients speak it.

mod compaction;
mod provider_tools;
mod thinking;

use std::borrow::Cow;

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::API;
use crate::inbound::{
    CompactedItem, DeferredTools, InboundDialect, InboundError, ItemCalls, ItemEdit, ItemGroup,
    LoweredBody, NamedCall, ParseContext, ParsedBody, ParsedCalls, ParsedEntry, ProviderEdits,
    StoredOverflow, SystemPlace, apply_edit, client_id, edit_user_parts, invalid_request, is_true,
    linked_entry, list_span, loaded_tools, optional_count, optional_text, output_limit,
    parse_content, raw_fields, raw_items, result_entry, session_id, user_entry,
};
use crate::json::{parse_object, set, string, take, take_text, text, text_of};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};

/// Claude Code puts texts with this tag beside tool results: they do not start a user's turn.
const REMINDER: &str = "<system-reminder>";

/// `POST /v1/messages` and `/v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnthropicInbound;

#[derive(Deserialize)]
struct AnthropicBody<'a> {
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "optional_text")]
    model: Cow<'a, str>,
    #[serde(default, deserialize_with = "is_true")]
    stream: bool,
    #[serde(default, deserialize_with = "optional_count")]
    max_tokens: Option<u64>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thread: Option<&'a RawValue>,
    #[serde(borrow, default)]
    context_management: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

/// What the API may do to the prompt.
#[derive(Deserialize)]
struct ContextManagement<'a> {
    #[serde(borrow, default)]
    edits: Option<&'a RawValue>,
}

impl AnthropicBody<'_> {
    fn provider_edits(&self) -> ProviderEdits {
        let read = |field: &RawValue| {
            let management: ContextManagement<'_> = serde_json::from_str(field.get()).ok()?;
            Some(ProviderEdits::of_list(management.edits))
        };
        self.context_management.and_then(read).unwrap_or_default()
    }

    /// Whether the messages continue a thread, whose earlier messages only the provider has
    /// (beta `message-threads-2026-08-12`).
    fn continues_thread(&self) -> bool {
        let thread = self.thread.and_then(|thread| parse_object(thread.get()).ok());
        thread.is_some_and(|thread| type_of(&thread) == "continue")
    }
}

impl InboundDialect for AnthropicInbound {
    fn system_place(&self) -> SystemPlace {
        SystemPlace::Field("system")
    }

    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: AnthropicBody<'a> =
            serde_json::from_str(json).map_err(|error| invalid_request(&error, json))?;
        let is_stored = wire.continues_thread();
        let mut items = if is_stored { Vec::new() } else { raw_items(&wire.messages) };
        let newest = compaction::find_newest(&items);
        let rest = items.split_off(newest.map_or(0, |(at, _)| at));
        let mut ignored_items = std::mem::replace(&mut items, rest);
        let earlier = compaction::find_newest(&ignored_items);
        ignored_items.drain(..earlier.map_or(0, |(at, _)| at));
        let tools = wire.tools.map(|tools| loaded_tools(tools, DeferredTools::Hidden));
        let provider_edits = wire.provider_edits();
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream,
            max_output_tokens: wire.max_tokens,
            window_tokens: None,
            session_hint: wire.metadata.map(RawValue::get),
            prompt_parts: raw_fields([wire.system])
                .chain(tools.into_iter().flatten())
                .chain(newest.map(|(_, block)| block))
                .collect(),
            provider_edits,
            ignored_items,
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
        let group = |(number, item): (usize, Result<Value, InboundError>)| {
            let mut message = item?;
            let position = before.items.len() + number;
            let (Some(role), Some(content)) =
                (take_text(&mut message, "role"), message.get_mut("content").map(Value::take))
            else {
                return Err(InboundError::in_message(number, "it has no role or no content"));
            };
            Ok(ItemGroup::single(match role.as_str() {
                "assistant" => {
                    let mut content = content;
                    // It is sent in any case, and counts beside the messages.
                    let compaction = compaction::split_content(&mut content);
                    if !compaction.is_empty() && content.as_array().is_some_and(Vec::is_empty) {
                        return Ok(ItemGroup::single(Vec::new()));
                    }
                    let links = provider_tools::links_of(&content);
                    let answer = parse_answer(content, position);
                    calls.add_answer(&answer, position);
                    vec![linked_entry(API, answer, links)]
                }
                "user" => parse_user_content(content, &mut calls, position),
                // Claude Code sends messages of the role `system` in mid-conversation.
                "system" => vec![ParsedEntry::Instruction(text_of(Some(&content)))],
                _ => vec![ParsedEntry::Note(text_of(Some(&content)))],
            }))
        };
        items.enumerate().map(group).collect()
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower(json, &[&["max_tokens"]], limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let message = items.first().and_then(|item| parse_object(item).ok());
        let Some(mut message) = message else { return Vec::new() };
        let blocks = blocks_of(take(&mut message, "content"));
        let blocks = match message.get("role").and_then(Value::as_str) {
            Some("user") => edit_user_parts(blocks, edits, is_result, edit_result, edit_blocks),
            Some("assistant") => apply_edit(blocks, edits.first(), replace_text, replace_answer),
            _ => edit_blocks(blocks, edits.first()),
        };
        if blocks.is_empty() {
            return Vec::new();
        }
        set(&mut message, "content", blocks);
        vec![message]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "content": [text_block(text)] })
    }

    fn assistant_item(&self, text: &str) -> Value {
        json!({ "role": "assistant", "content": [text_block(text)] })
    }

    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        let result = json!({
            "type": "tool_result", "tool_use_id": client_id(call_id), "content": text,
            "is_error": true,
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

    fn split_compaction(&self, item: &str) -> Option<CompactedItem> {
        compaction::split_item(item)
    }

    fn disable_thinking(&self, body: Vec<u8>) -> Vec<u8> {
        thinking::disable_thinking(&body).unwrap_or(body)
    }

    /// The SDKs begin a new thread with the whole history after this error.
    fn stored_overflow(&self, json: &str) -> Option<StoredOverflow> {
        let wire: AnthropicBody<'_> = serde_json::from_str(json).ok()?;
        let error = json!({
            "type": "not_found_error",
            "message": "The thread is larger than the context window: send the whole conversation.",
            "details": { "error_code": "thread_not_found" },
        });
        let body = json!({ "type": "error", "error": error });
        wire.continues_thread().then_some(StoredOverflow::NotFound(body))
    }

    /// Roles alternate, and all results of an answer are in one message.
    fn join_items(&self, first: &mut Value, mut second: Value) -> Option<Value> {
        if first.get("role") != second.get("role") {
            return Some(second);
        }
        // The content is taken out and not cloned: thousands of results may be joined one by one.
        let take_blocks = |message: &mut Value| {
            blocks_of(message.get_mut("content").map(Value::take).unwrap_or_default())
        };
        let mut blocks = take_blocks(first);
        blocks.extend(take_blocks(&mut second));
        set(first, "content", blocks);
        None
    }
}

/// The blocks of a content; a string is one text block, and one block may be in the place of a list.
fn blocks_of(content: Value) -> Vec<Value> {
    match content {
        Value::Array(blocks) => blocks,
        Value::String(text) => vec![text_block(&text)],
        block @ Value::Object(_) => vec![block],
        _ => Vec::new(),
    }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn type_of(block: &Value) -> &str {
    text(block, "type")
}

fn read_calls(mut message: Value, position: usize) -> ItemCalls {
    let content = take(&mut message, "content");
    match text(&message, "role") {
        "assistant" => ItemCalls::of_answer(&parse_answer(content, position)),
        "user" => {
            let results = blocks_of(content);
            let calls = results.iter().filter(|block| is_result(block)).map(call_of_result);
            ItemCalls::Results(calls.collect())
        }
        _ => ItemCalls::Other,
    }
}

/// What a result says of its call.
fn call_of_result(block: &Value) -> NamedCall {
    NamedCall { id: string(block, "tool_use_id"), name: String::new() }
}

fn parse_answer(content: Value, position: usize) -> Vec<ChatBlock> {
    let mut blocks = parse_content(content, answer_block);
    let calls = blocks.iter_mut().filter_map(|block| match block {
        ChatBlock::ToolCall(call) => Some(call),
        _ => None,
    });
    for (nth, call) in calls.enumerate().filter(|(_, call)| call.id.is_empty()) {
        call.id = session_id("", position, nth);
    }
    blocks
}

fn answer_block(mut block: Value) -> ChatBlock {
    match type_of(&block) {
        "tool_use" => {
            let (id, name) = (string(&block, "id"), string(&block, "name"));
            ChatBlock::ToolCall(ToolCallBlock::new(id, name, take(&mut block, "input")))
        }
        "thinking" => {
            let thinking = take_text(&mut block, "thinking").unwrap_or_default();
            ChatBlock::thinking(thinking, Some(string(&block, "signature")))
        }
        "redacted_thinking" => ChatBlock::Thinking {
            thinking: String::new(),
            thinking_signature: Some(string(&block, "data")),
            redacted: true,
        },
        _ => visible_block(block),
    }
}

/// A block of a user message or a tool result.
fn visible_block(mut block: Value) -> ChatBlock {
    match type_of(&block) {
        "text" => ChatBlock::text(take_text(&mut block, "text").unwrap_or_default()),
        "image" => inline_image_block(&mut block).unwrap_or(ChatBlock::Other(block)),
        _ => ChatBlock::Other(block),
    }
}

/// An image in the block itself; `None` if it is a URL or the id of a file.
fn inline_image_block(block: &mut Value) -> Option<ChatBlock> {
    let source = block.get_mut("source")?;
    let data = take_text(source, "data")?;
    Some(ChatBlock::Image { data, mime_type: string(source, "media_type") })
}

/// The tool results of a user message, then one entry for all other blocks.
fn parse_user_content(
    content: Value,
    calls: &mut ParsedCalls<'_>,
    position: usize,
) -> Vec<ParsedEntry> {
    let Value::Array(blocks) = content else {
        return vec![user_entry(parse_content(content, visible_block))];
    };
    let (results, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    let rest: Vec<_> = rest.into_iter().map(visible_block).collect();
    let results = results.into_iter().enumerate();
    let mut entries: Vec<_> =
        results.map(|(nth, block)| parse_result(block, calls, position, nth)).collect();
    let has_results = !entries.is_empty();
    // A user entry here would make engines see a new turn in the middle of the tool loop.
    if has_results && !rest.is_empty() && rest.iter().all(is_reminder) {
        entries.push(ParsedEntry::Note(reminder_text(&rest)));
    } else if !rest.is_empty() || !has_results {
        entries.push(user_entry(rest));
    }
    entries
}

fn is_reminder(block: &ChatBlock) -> bool {
    matches!(block, ChatBlock::Text { text, .. } if text.trim_start().starts_with(REMINDER))
}

fn reminder_text(blocks: &[ChatBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ChatBlock::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn is_result(block: &Value) -> bool {
    type_of(block) == "tool_result"
}

fn parse_result(
    mut block: Value,
    calls: &mut ParsedCalls<'_>,
    position: usize,
    nth: usize,
) -> ParsedEntry {
    let NamedCall { id, name } = call_of_result(&block);
    let call = calls.answered_by(&id, &name).unwrap_or_else(|| {
        // A result without a call keeps its id or gets one of its own; the invariants drop it as an orphan.
        let id = if id.is_empty() { format!("{position}.{nth} unasked") } else { id };
        NamedCall { id, name }
    });
    let content = parse_content(take(&mut block, "content"), visible_block);
    let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or_default();
    result_entry(call.id, call.name, content, is_error)
}

/// Replaces the content of a result; its call id stays.
fn edit_result(mut block: Value, edit: &ItemEdit<'_>) -> Option<Value> {
    let content: Value = match edit {
        ItemEdit::Keep => return Some(block),
        ItemEdit::Drop => return None,
        ItemEdit::ReplaceText(text) => text.as_ref().into(),
        ItemEdit::ReplaceMessage(message) => wire_blocks(message).into(),
    };
    set(&mut block, "content", content);
    Some(block)
}

fn edit_blocks(blocks: Vec<Value>, edit: Option<&ItemEdit<'_>>) -> Vec<Value> {
    apply_edit(blocks, edit, |_, text| vec![text_block(text)], |_, message| wire_blocks(message))
}

/// An answer with another text and the same calls.
fn replace_text(blocks: Vec<Value>, text: &str) -> Vec<Value> {
    let text = (!text.trim().is_empty()).then(|| text_block(text));
    let calls = blocks.iter().filter(|block| type_of(block) == "tool_use").cloned();
    let rest = text.into_iter().chain(calls).collect();
    after_thinking(blocks, rest)
}

/// An answer with other texts and calls.
fn replace_answer(blocks: Vec<Value>, message: &ChatMessage) -> Vec<Value> {
    let mut calls = OpenCalls::default();
    let originals = blocks.iter().filter(|block| type_of(block) == "tool_use");
    calls.open(originals.map(|block| (text(block, "id").to_owned(), block)));
    let wire = |block: &ChatBlock| match block {
        ChatBlock::ToolCall(call) => {
            let original = calls.take(client_id(&call.id)).cloned();
            let mut block = original.or_else(|| wire_block(&ChatBlock::ToolCall(call.clone())))?;
            set(&mut block, "input", call.arguments.clone());
            Some(block)
        }
        other => wire_block(other),
    };
    let rest = message.content().iter().filter_map(wire).filter(|block| !is_thinking(block));
    let rest = rest.collect();
    after_thinking(blocks, rest)
}

/// The changed `rest` of an answer, behind the thinking and with the linked blocks of its original.
fn after_thinking(original: Vec<Value>, rest: Vec<Value>) -> Vec<Value> {
    let rest = provider_tools::with_linked_blocks(&original, rest);
    // The original thinking stays in front, unchanged: the API refuses an answer that begins
    // without it or whose thinking was edited.
    let thinking = original.into_iter().filter(is_thinking);
    if rest.is_empty() { rest } else { thinking.chain(rest).collect() }
}

fn is_thinking(block: &Value) -> bool {
    matches!(type_of(block), "thinking" | "redacted_thinking")
}

fn wire_blocks(message: &ChatMessage) -> Vec<Value> {
    message.content().iter().filter_map(wire_block).collect()
}

fn wire_block(block: &ChatBlock) -> Option<Value> {
    Some(match block {
        // Blank texts are refused.
        ChatBlock::Text { text, .. } if text.trim().is_empty() => return None,
        ChatBlock::Text { text, .. } => text_block(text),
        ChatBlock::Thinking { thinking_signature, redacted: true, .. } => {
            json!({ "type": "redacted_thinking", "data": thinking_signature })
        }
        ChatBlock::Thinking { thinking, thinking_signature, .. } => {
            json!({ "type": "thinking", "thinking": thinking, "signature": thinking_signature })
        }
        ChatBlock::ToolCall(call) => {
            let id = client_id(&call.id);
            json!({ "type": "tool_use", "id": id, "name": call.name, "input": call.arguments })
        }
        ChatBlock::Image { data, mime_type } => {
            let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
            json!({ "type": "image", "source": source })
        }
        ChatBlock::ProviderItem { item, .. } | ChatBlock::Other(item) => item.clone(),
    })
}
