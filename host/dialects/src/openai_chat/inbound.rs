//! OpenAI's chat completions, as clients write them.

use std::borrow::Cow;
use std::collections::HashMap;

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

/// `POST /v1/chat/completions`, and the many servers that speak nearly the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChatInbound;

#[derive(Deserialize)]
struct ChatRequestBody<'a> {
    #[serde(borrow, default)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model: Cow<'a, str>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
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

/// What is read of one message before it is taken apart.
#[derive(Deserialize)]
struct MessageHead {
    #[serde(default)]
    role: String,
}

impl InboundDialect for OpenAiChatInbound {
    /// The system prompt is the run of system messages at the beginning.
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: ChatRequestBody<'a> =
            serde_json::from_str(json).map_err(|e| invalid_request(&e))?;
        let (leading, items, list) = split_instructions(json, &wire.messages, is_instruction);
        let fields = [wire.tools, wire.functions, wire.response_format];
        let prompt = fields.into_iter().flatten().map(RawValue::get).chain(leading).collect();
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream.unwrap_or_default(),
            max_output_tokens: wire.max_completion_tokens.or(wire.max_tokens),
            session_hint: wire.prompt_cache_key.map(RawValue::get),
            prompt_parts: prompt,
            items,
            items_span: list,
        })
    }

    /// The last two are those of llama.cpp and Ollama, whose servers read them beside OpenAI's own.
    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        const PATHS: [&[&str]; 4] = [
            &["max_completion_tokens"],
            &["max_tokens"],
            &["n_predict"],
            &["options", "num_predict"],
        ];
        output_limit::lower_numbers(json, &PATHS, limit_tokens)
    }

    fn parse_items(
        &self,
        items: &[&str],
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut tools = HashMap::new();
        let mut is_begin = before.is_start;
        let mut units = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let message: Map<String, Value> = serde_json::from_str(item).map_err(|error| {
                InboundError::InvalidMessage { number, reason: error.to_string() }
            })?;
            let tool_of = |id: &str| tools.get(id).cloned().or_else(|| (before.tool_name_of)(id));
            let said = match role_of(&message) {
                "system" | "developer" if is_begin => Vec::new(),
                "user" => vec![ParsedEntry::Message(parse_user(&message))],
                "tool" => vec![parse_result(&message, &tool_of)],
                "assistant" => {
                    let answer = parse_answer(&message);
                    tools.extend(
                        answer.tool_calls().map(|call| (call.id.clone(), call.name.clone())),
                    );
                    vec![ParsedEntry::Message(ChatMessage::Assistant(answer))]
                }
                _ => vec![ParsedEntry::Note(text_of(message.get("content")))],
            };
            is_begin &= said.is_empty();
            units.push(ItemGroup { item_count: 1, entries: said });
        }
        Ok(units)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let read = |item: &&str| serde_json::from_str::<Map<String, Value>>(item).ok();
        let (Some(mut message), Some(edit)) = (items.first().and_then(read), edits.first()) else {
            return Vec::new();
        };
        match edit {
            ItemEdit::Drop => return Vec::new(),
            ItemEdit::Keep => {}
            ItemEdit::ReplaceText(text) => replace_text(&mut message, text),
            ItemEdit::ReplaceMessage(written) => replace_message(&mut message, written),
        }
        vec![message.into()]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        Some(json!({ "role": "tool", "tool_call_id": call_id, "content": text }))
    }

    /// Messages of one role may follow each other.
    fn join_items(&self, _first: &mut Value, second: Value) -> Option<Value> {
        Some(second)
    }
}

fn is_instruction(item: &str) -> bool {
    let head: Option<MessageHead> = serde_json::from_str(item).ok();
    head.is_some_and(|head| matches!(head.role.as_str(), "system" | "developer"))
}

fn role_of(message: &Map<String, Value>) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn string(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a content shows; nothing for none.
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
    let url = part.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
    match url.and_then(inline_image) {
        Some((mime_type, data)) => ChatBlock::Image { data, mime_type },
        None => ChatBlock::Other(part.clone()),
    }
}

/// The type and the base64 of a `data:` address.
fn inline_image(url: &str) -> Option<(String, String)> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some((mime_type.to_owned(), data.to_owned()))
}

fn parse_user(message: &Map<String, Value>) -> ChatMessage {
    let content = parse_content(message.get("content"));
    ChatMessage::User(UserMessage { content, timestamp: 0 })
}

/// A result. One whose call nobody can tell (many servers on one's own machine want no ids) is a note:
/// the law would leave a result without a call out.
fn parse_result(
    message: &Map<String, Value>,
    tool_of: &dyn Fn(&str) -> Option<String>,
) -> ParsedEntry {
    let id = string(message.get("tool_call_id"));
    let Some(tool_name) = tool_of(&id) else {
        return ParsedEntry::Note(text_of(message.get("content")));
    };
    ParsedEntry::Message(ChatMessage::ToolResult(ToolResultMessage {
        tool_name,
        tool_call_id: id,
        content: parse_content(message.get("content")),
        is_error: false,
        timestamp: 0,
    }))
}

fn parse_answer(message: &Map<String, Value>) -> AssistantMessage {
    let mut content = Vec::new();
    let thinking = string(message.get("reasoning_content"));
    if !thinking.is_empty() {
        content.push(ChatBlock::Thinking { thinking, thinking_signature: None, redacted: false });
    }
    content.extend(parse_content(message.get("content")));
    let calls = message.get("tool_calls").and_then(Value::as_array);
    content.extend(calls.into_iter().flatten().map(parse_call_block));
    AssistantMessage { content, api: API.into(), ..AssistantMessage::default() }
}

/// A call; one without an id waits for no result that could be told from others.
fn parse_call_block(asked: &Value) -> ChatBlock {
    let call = parse_call(asked);
    match call.id.is_empty() {
        true => ChatBlock::ProviderItem { api: API.into(), item: asked.clone() },
        false => ChatBlock::ToolCall(call),
    }
}

fn parse_call(asked: &Value) -> ToolCallBlock {
    let function = asked.get("function");
    let arguments = string(function.and_then(|function| function.get("arguments")));
    ToolCallBlock {
        id: string(asked.get("id")),
        name: string(function.and_then(|function| function.get("name"))),
        // Models write JSON that is none; the words count all the same.
        arguments: serde_json::from_str(&arguments).unwrap_or(Value::String(arguments)),
        thought_signature: None,
    }
}

/// Another text: calls stay, thinking goes.
fn replace_text(message: &mut Map<String, Value>, text: &str) {
    remove_thinking(message);
    let calls = message.contains_key("tool_calls");
    let content = if calls && text.trim().is_empty() { Value::Null } else { text.into() };
    message.insert("content".into(), content);
}

fn remove_thinking(message: &mut Map<String, Value>) {
    message.shift_remove("reasoning_content");
    message.shift_remove("reasoning");
    message.shift_remove("reasoning_details");
}

fn replace_message(message: &mut Map<String, Value>, written: &ChatMessage) {
    let parts: Vec<Value> = written.content().iter().filter_map(wire_part).collect();
    let texts = parts.iter().all(|part| part.get("text").is_some());
    let content = match (texts, parts.is_empty()) {
        (_, true) => Value::Null,
        (true, _) => text_of(Some(&parts.into())).into(),
        (false, _) => parts.into(),
    };
    message.insert("content".into(), content);
    if let (ChatMessage::Assistant(answer), Some(Value::Array(calls))) =
        (written, message.get_mut("tool_calls"))
    {
        calls.retain_mut(|asked| {
            let id = string(asked.get("id"));
            if id.is_empty() {
                return true;
            }
            let kept = answer.tool_calls().find(|call| call.id == id);
            kept.is_some_and(|call| set_arguments(asked, &call.arguments).is_some())
        });
    }
}

fn set_arguments(asked: &mut Value, arguments: &Value) -> Option<()> {
    let text = match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    asked.get_mut("function")?.as_object_mut()?.insert("arguments".into(), text.into());
    Some(())
}

/// A part as it is sent; calls and thinking have places of their own.
fn wire_part(block: &ChatBlock) -> Option<Value> {
    match block {
        ChatBlock::Text { text, .. } => Some(json!({ "type": "text", "text": text })),
        ChatBlock::Image { data, mime_type } => {
            let url = format!("data:{mime_type};base64,{data}");
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        ChatBlock::Other(part) => Some(part.clone()),
        ChatBlock::ToolCall(_) | ChatBlock::Thinking { .. } | ChatBlock::ProviderItem { .. } => {
            None
        }
    }
}
