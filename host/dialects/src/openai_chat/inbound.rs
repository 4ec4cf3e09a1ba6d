//! OpenAI's chat completions, as clients write them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::API;
use crate::inbound::{
    BadBody, Body, Edit, InboundDialect, LoweredBody, ParseContext, ParsedEntry, Unit, instructed,
    not_a_request, output_limit,
};
use crate::json::text_of;
use crate::message::{AssistantMessage, ToolCall, ToolResultMessage, UserMessage};
use crate::{ChatMessage, Content};

/// `POST /v1/chat/completions`, and the many servers that speak nearly the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChatInbound;

#[derive(Deserialize)]
struct WireBody<'a> {
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
struct Head {
    #[serde(default)]
    role: String,
}

impl InboundDialect for OpenAiChatInbound {
    /// The system prompt is the run of system messages at the beginning.
    fn body<'a>(&self, json: &'a str) -> Result<Body<'a>, BadBody> {
        let wire: WireBody<'a> = serde_json::from_str(json).map_err(|e| not_a_request(&e))?;
        let (leading, items, list) = instructed(json, &wire.messages, is_instruction);
        let fields = [wire.tools, wire.functions, wire.response_format];
        let prompt = fields.into_iter().flatten().map(RawValue::get).chain(leading).collect();
        Ok(Body {
            model: wire.model,
            is_stream: wire.stream.unwrap_or_default(),
            max_output_tokens: wire.max_completion_tokens.or(wire.max_tokens),
            session: wire.prompt_cache_key.map(RawValue::get),
            prompt,
            items,
            list,
        })
    }

    /// The last two are those of llama.cpp and Ollama, whose servers read them beside OpenAI's own.
    fn lower_output(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        const PATHS: [&[&str]; 4] = [
            &["max_completion_tokens"],
            &["max_tokens"],
            &["n_predict"],
            &["options", "num_predict"],
        ];
        output_limit::lower(json, &PATHS, limit_tokens)
    }

    fn units(&self, items: &[&str], before: ParseContext<'_>) -> Result<Vec<Unit>, BadBody> {
        let mut tools = HashMap::new();
        let mut is_begin = before.is_begin;
        let mut units = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let message: Map<String, Value> = serde_json::from_str(item)
                .map_err(|error| BadBody::Message { number, reason: error.to_string() })?;
            let tool_of = |id: &str| tools.get(id).cloned().or_else(|| (before.tool_of)(id));
            let said = match role_of(&message) {
                "system" | "developer" if is_begin => Vec::new(),
                "user" => vec![ParsedEntry::Message(heard(&message))],
                "tool" => vec![result(&message, &tool_of)],
                "assistant" => {
                    let answer = answer(&message);
                    tools.extend(
                        answer.tool_calls().map(|call| (call.id.clone(), call.name.clone())),
                    );
                    vec![ParsedEntry::Message(ChatMessage::Assistant(answer))]
                }
                _ => vec![ParsedEntry::Note(text_of(message.get("content")))],
            };
            is_begin &= said.is_empty();
            units.push(Unit { items: 1, said });
        }
        Ok(units)
    }

    fn change(&self, items: &[&str], edits: &[Edit<'_>]) -> Vec<Value> {
        let read = |item: &&str| serde_json::from_str::<Map<String, Value>>(item).ok();
        let (Some(mut message), Some(edit)) = (items.first().and_then(read), edits.first()) else {
            return Vec::new();
        };
        match edit {
            Edit::Drop => return Vec::new(),
            Edit::Keep => {}
            Edit::ReplaceText(text) => retell(&mut message, text),
            Edit::ReplaceMessage(written) => rewrite(&mut message, written),
        }
        vec![message.into()]
    }

    fn person(&self, text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn missing_result(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        Some(json!({ "role": "tool", "tool_call_id": call_id, "content": text }))
    }

    /// Messages of one role may follow each other.
    fn join(&self, _first: &mut Value, second: Value) -> Option<Value> {
        Some(second)
    }
}

fn is_instruction(item: &str) -> bool {
    let head: Option<Head> = serde_json::from_str(item).ok();
    head.is_some_and(|head| matches!(head.role.as_str(), "system" | "developer"))
}

fn role_of(message: &Map<String, Value>) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn string(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a content shows; nothing for none.
fn shown(content: Option<&Value>) -> Vec<Content> {
    match content {
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(Value::String(text)) => vec![Content::text(text.clone())],
        _ => Vec::new(),
    }
}

fn part(part: &Value) -> Content {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Content::text(text);
    }
    let url = part.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
    match url.and_then(inline_image) {
        Some((mime_type, data)) => Content::Image { data, mime_type },
        None => Content::Other(part.clone()),
    }
}

/// The type and the base64 of a `data:` address.
fn inline_image(url: &str) -> Option<(String, String)> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some((mime_type.to_owned(), data.to_owned()))
}

fn heard(message: &Map<String, Value>) -> ChatMessage {
    let content = shown(message.get("content"));
    ChatMessage::User(UserMessage { content, timestamp: 0 })
}

/// A result. One whose call nobody can tell (many servers on one's own machine want no ids) is a note:
/// the law would leave a result without a call out.
fn result(message: &Map<String, Value>, tool_of: &dyn Fn(&str) -> Option<String>) -> ParsedEntry {
    let id = string(message.get("tool_call_id"));
    let Some(tool_name) = tool_of(&id) else {
        return ParsedEntry::Note(text_of(message.get("content")));
    };
    ParsedEntry::Message(ChatMessage::ToolResult(ToolResultMessage {
        tool_name,
        tool_call_id: id,
        content: shown(message.get("content")),
        is_error: false,
        timestamp: 0,
    }))
}

fn answer(message: &Map<String, Value>) -> AssistantMessage {
    let mut content = Vec::new();
    let thinking = string(message.get("reasoning_content"));
    if !thinking.is_empty() {
        content.push(Content::Thinking { thinking, thinking_signature: None, redacted: false });
    }
    content.extend(shown(message.get("content")));
    let calls = message.get("tool_calls").and_then(Value::as_array);
    content.extend(calls.into_iter().flatten().map(asked_for));
    AssistantMessage { content, api: API.into(), ..AssistantMessage::default() }
}

/// A call; one without an id waits for no result that could be told from others.
fn asked_for(asked: &Value) -> Content {
    let call = call(asked);
    match call.id.is_empty() {
        true => Content::ProviderItem { api: API.into(), item: asked.clone() },
        false => Content::ToolCall(call),
    }
}

fn call(asked: &Value) -> ToolCall {
    let function = asked.get("function");
    let arguments = string(function.and_then(|function| function.get("arguments")));
    ToolCall {
        id: string(asked.get("id")),
        name: string(function.and_then(|function| function.get("name"))),
        // Models write JSON that is none; the words count all the same.
        arguments: serde_json::from_str(&arguments).unwrap_or(Value::String(arguments)),
        thought_signature: None,
    }
}

/// Another text: calls stay, thinking goes.
fn retell(message: &mut Map<String, Value>, text: &str) {
    forget_thinking(message);
    let calls = message.contains_key("tool_calls");
    let content = if calls && text.trim().is_empty() { Value::Null } else { text.into() };
    message.insert("content".into(), content);
}

fn forget_thinking(message: &mut Map<String, Value>) {
    message.shift_remove("reasoning_content");
    message.shift_remove("reasoning");
    message.shift_remove("reasoning_details");
}

fn rewrite(message: &mut Map<String, Value>, written: &ChatMessage) {
    let parts: Vec<Value> = written.content().iter().filter_map(wire_of).collect();
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
fn wire_of(block: &Content) -> Option<Value> {
    match block {
        Content::Text { text, .. } => Some(json!({ "type": "text", "text": text })),
        Content::Image { data, mime_type } => {
            let url = format!("data:{mime_type};base64,{data}");
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Content::Other(part) => Some(part.clone()),
        Content::ToolCall(_) | Content::Thinking { .. } | Content::ProviderItem { .. } => None,
    }
}
