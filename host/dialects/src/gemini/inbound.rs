//! Gemini's contents, as clients write them.
//!
//! Calls seldom have ids there: a response answers the call of its name in the content before it. So
//! calls are named by their place, `item.nth`, which stays as long as the history does.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::API;
use crate::inbound::{
    InboundDialect, InboundError, ItemEdit, ItemGroup, LoweredBody, ParseContext, ParsedBody,
    ParsedEntry, invalid_request, list_items, output_limit,
};
use crate::json::string;
use crate::message::{AssistantMessage, ToolCallBlock, ToolResultMessage, UserMessage};
use crate::{ChatBlock, ChatMessage};

/// `POST /v1beta/models/M:generateContent`, `:streamGenerateContent` and `:countTokens`. Which model
/// and whether to stream stands in the path, not in the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct GeminiInbound;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiBody<'a> {
    #[serde(borrow, default, alias = "system_instruction")]
    system_instruction: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(default, alias = "generation_config")]
    generation_config: Option<GenerationConfig>,
    #[serde(borrow)]
    contents: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(default, alias = "max_output_tokens")]
    max_output_tokens: Option<u64>,
}

/// A call, as the responses to it find it.
struct GeminiCall {
    id: String,
    name: String,
}

/// Calls that nothing has answered yet. There may be tens of thousands side by side.
#[derive(Default)]
struct UnansweredCalls {
    calls: Vec<Option<GeminiCall>>,
    by_id: HashMap<String, VecDeque<usize>>,
    by_name: HashMap<String, VecDeque<usize>>,
}

impl UnansweredCalls {
    fn new(asked: Vec<GeminiCall>) -> UnansweredCalls {
        let mut open = UnansweredCalls::default();
        for (at, call) in asked.into_iter().enumerate() {
            open.by_id.entry(call.id.clone()).or_default().push_back(at);
            open.by_name.entry(call.name.clone()).or_default().push_back(at);
            open.calls.push(Some(call));
        }
        open
    }

    /// The first one of this id; where there is none in the response, the first of this name.
    fn take(&mut self, id: &str, name: &str) -> Option<GeminiCall> {
        let same = match id.is_empty() {
            true => self.by_name.get_mut(name)?,
            false => self.by_id.get_mut(id)?,
        };
        while let Some(at) = same.pop_front() {
            if let Some(call) = self.calls.get_mut(at).and_then(Option::take) {
                return Some(call);
            }
        }
        None
    }
}

impl InboundDialect for GeminiInbound {
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: GeminiBody<'a> = serde_json::from_str(json).map_err(|e| invalid_request(&e))?;
        let (items, list) = list_items(json, &wire.contents);
        let fields = [wire.system_instruction, wire.tools];
        Ok(ParsedBody {
            model: Cow::Borrowed(""),
            is_stream: false,
            max_output_tokens: wire.generation_config.and_then(|config| config.max_output_tokens),
            session_hint: None,
            prompt_parts: fields.into_iter().flatten().map(RawValue::get).collect(),
            items,
            items_span: list,
        })
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        const PATHS: [&[&str]; 4] = [
            &["generationConfig", "maxOutputTokens"],
            &["generationConfig", "max_output_tokens"],
            &["generation_config", "maxOutputTokens"],
            &["generation_config", "max_output_tokens"],
        ];
        output_limit::lower_numbers(json, &PATHS, limit_tokens)
    }

    fn parse_items(
        &self,
        items: &[&str],
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let last = before.last_item.and_then(parse_content);
        let place = before.item_count.saturating_sub(1);
        let mut asked = last.map_or_else(Vec::new, |content| calls(&content, place));
        let mut units = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let content: Map<String, Value> = serde_json::from_str(item).map_err(|error| {
                InboundError::InvalidMessage { number, reason: error.to_string() }
            })?;
            let place = before.item_count + number;
            let said = match is_model(&content) {
                true => vec![ParsedEntry::Message(parse_answer(&content, place))],
                false => parse_user_content(&content, std::mem::take(&mut asked), place),
            };
            asked = calls(&content, place);
            units.push(ItemGroup { item_count: 1, entries: said });
        }
        Ok(units)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let Some(mut content) = items.first().and_then(|item| parse_content(item)) else {
            return Vec::new();
        };
        let parts = match content.remove("parts") {
            Some(Value::Array(parts)) => parts,
            _ => Vec::new(),
        };
        let parts = match is_model(&content) {
            true => edit_answer(parts, edits.first()),
            false => edit_user_parts(parts, edits),
        };
        if parts.is_empty() {
            return Vec::new();
        }
        content.insert("parts".into(), parts.into());
        vec![content.into()]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "parts": [{ "text": text }] })
    }

    fn missing_result_item(
        &self,
        _call_id: &str,
        tool: &str,
        text: &str,
        _call: Option<&str>,
    ) -> Option<Value> {
        let response = json!({ "name": tool, "response": { "error": text } });
        Some(json!({ "role": "user", "parts": [{ "functionResponse": response }] }))
    }

    /// All responses stand in the content behind the calls (G-rules), and roles take turns.
    fn join_items(&self, first: &mut Value, second: Value) -> Option<Value> {
        let is_model = |content: &Value| content.get("role").is_some_and(|role| role == "model");
        if is_model(first) != is_model(&second) {
            return Some(second);
        }
        match first.get_mut("parts").and_then(Value::as_array_mut) {
            Some(parts) => {
                parts.extend(
                    second.get("parts").and_then(Value::as_array).into_iter().flatten().cloned(),
                );
                None
            }
            None => Some(second),
        }
    }
}

fn parse_content(item: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(item).ok()
}

fn is_model(content: &Map<String, Value>) -> bool {
    content.get("role").is_some_and(|role| role == "model")
}

fn parts_of(content: &Map<String, Value>) -> &[Value] {
    content.get("parts").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field<'a>(part: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    part.get(camel).or_else(|| part.get(snake))
}

fn call_of(part: &Value) -> Option<&Value> {
    field(part, "functionCall", "function_call")
}

fn response_of(part: &Value) -> Option<&Value> {
    field(part, "functionResponse", "function_response")
}

/// The calls of a content and the ids that they have in the session.
fn calls(content: &Map<String, Value>, place: usize) -> Vec<GeminiCall> {
    let calls = parts_of(content).iter().filter_map(call_of).enumerate();
    calls
        .map(|(nth, call)| GeminiCall { id: id_of(call, place, nth), name: string(call, "name") })
        .collect()
}

fn id_of(call: &Value, place: usize, nth: usize) -> String {
    match call.get("id").and_then(Value::as_str) {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => format!("{place}.{nth}"),
    }
}

fn parse_answer(content: &Map<String, Value>, place: usize) -> ChatMessage {
    let mut nth = 0;
    let blocks = parts_of(content).iter().map(|part| {
        let Some(call) = call_of(part) else { return parse_part(part) };
        let id = id_of(call, place, nth);
        nth += 1;
        ChatBlock::ToolCall(ToolCallBlock {
            id,
            name: string(call, "name"),
            arguments: call.get("args").cloned().unwrap_or_default(),
            thought_signature: field(part, "thoughtSignature", "thought_signature")
                .and_then(|signature| Some(signature.as_str()?.to_owned())),
        })
    });
    ChatMessage::Assistant(AssistantMessage {
        content: blocks.collect(),
        api: API.into(),
        ..AssistantMessage::default()
    })
}

fn parse_part(part: &Value) -> ChatBlock {
    let inline = field(part, "inlineData", "inline_data");
    match (part.get("text").and_then(Value::as_str), inline) {
        (Some(text), _) if part.get("thought").is_some_and(|thought| thought == true) => {
            let (thinking, redacted) = (text.to_owned(), false);
            ChatBlock::Thinking { thinking, thinking_signature: None, redacted }
        }
        (Some(text), _) => ChatBlock::text(text),
        (None, Some(inline)) => ChatBlock::Image {
            data: string(inline, "data"),
            mime_type: field(inline, "mimeType", "mime_type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        },
        _ => ChatBlock::Other(part.clone()),
    }
}

/// Responses in order, and then what the person says beside them. Each takes the first open call of
/// its name.
fn parse_user_content(
    content: &Map<String, Value>,
    asked: Vec<GeminiCall>,
    place: usize,
) -> Vec<ParsedEntry> {
    let mut asked = UnansweredCalls::new(asked);
    let mut said = Vec::new();
    let mut rest = Vec::new();
    for (nth, part) in parts_of(content).iter().enumerate() {
        let Some(response) = response_of(part) else {
            rest.push(parse_part(part));
            continue;
        };
        let (id, name) = (string(response, "id"), string(response, "name"));
        let call = asked.take(&id, &name);
        // An answer to nothing is an orphan, and the law knows what to do with one.
        let id = call.map_or_else(|| format!("{place}.{nth} unasked"), |call| call.id);
        said.push(ParsedEntry::Message(parse_result(response, id, name)));
    }
    if !rest.is_empty() || said.is_empty() {
        let user = UserMessage { content: rest, timestamp: 0 };
        said.push(ParsedEntry::Message(ChatMessage::User(user)));
    }
    said
}

fn parse_result(response: &Value, id: String, name: String) -> ChatMessage {
    let answer = response.get("response");
    let told = answer.and_then(|answer| answer.get("output").or_else(|| answer.get("result")));
    let text = match told.or(answer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    ChatMessage::ToolResult(ToolResultMessage {
        tool_call_id: id,
        tool_name: name,
        content: vec![ChatBlock::text(text)],
        is_error: answer.is_some_and(|answer| answer.get("error").is_some()),
        timestamp: 0,
    })
}

/// Responses take the edits in order; the last edit is that of everything else.
fn edit_user_parts(parts: Vec<Value>, edits: &[ItemEdit<'_>]) -> Vec<Value> {
    let (responses, rest): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| response_of(part).is_some());
    let rest_edit = edits.get(responses.len()).unwrap_or(&ItemEdit::Keep).clone();
    let changed = responses.into_iter().zip(edits);
    let mut parts: Vec<Value> =
        changed.filter_map(|(part, edit)| edit_response(part, edit)).collect();
    parts.extend(match &rest_edit {
        ItemEdit::Keep => rest,
        ItemEdit::Drop => Vec::new(),
        ItemEdit::ReplaceText(text) => vec![json!({ "text": text })],
        ItemEdit::ReplaceMessage(message) => {
            message.content().iter().filter_map(wire_part).collect()
        }
    });
    parts
}

fn edit_response(mut part: Value, edit: &ItemEdit<'_>) -> Option<Value> {
    let text = match edit {
        ItemEdit::Keep => return Some(part),
        ItemEdit::Drop => return None,
        ItemEdit::ReplaceText(text) => text.clone().into_owned(),
        ItemEdit::ReplaceMessage(message) => {
            let text = |block: &ChatBlock| match block {
                ChatBlock::Text { text, .. } => Some(text.clone()),
                _ => None,
            };
            message.content().iter().filter_map(text).collect::<Vec<_>>().join("\n")
        }
    };
    let response = ["functionResponse", "function_response"]
        .into_iter()
        .find(|key| part.get(key).is_some())
        .and_then(|key| part.get_mut(key)?.as_object_mut())?;
    response.insert("response".into(), json!({ "output": text }));
    Some(part)
}

fn edit_answer(parts: Vec<Value>, edit: Option<&ItemEdit<'_>>) -> Vec<Value> {
    match edit {
        None | Some(ItemEdit::Keep) => parts,
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) => {
            let calls = parts.into_iter().filter(|part| call_of(part).is_some());
            let told = (!text.trim().is_empty()).then(|| json!({ "text": text }));
            told.into_iter().chain(calls).collect()
        }
        Some(ItemEdit::ReplaceMessage(message)) => replace_answer(&parts, message),
    }
}

/// Another answer: its calls keep the parts that they came in, signatures among them.
fn replace_answer(parts: &[Value], message: &ChatMessage) -> Vec<Value> {
    let mut calls = parts.iter().filter(|part| call_of(part).is_some());
    let written = |block: &ChatBlock| match block {
        ChatBlock::ToolCall(call) => {
            let mut part = calls
                .find(|part| call_of(part).is_some_and(|wire| string(wire, "name") == call.name))?
                .clone();
            let key =
                if part.get("functionCall").is_some() { "functionCall" } else { "function_call" };
            part.get_mut(key)?.as_object_mut()?.insert("args".into(), call.arguments.clone());
            Some(part)
        }
        other => wire_part(other),
    };
    message.content().iter().filter_map(written).collect()
}

fn wire_part(block: &ChatBlock) -> Option<Value> {
    match block {
        ChatBlock::Text { text, .. } => Some(json!({ "text": text })),
        ChatBlock::Image { data, mime_type } => {
            Some(json!({ "inlineData": { "mimeType": mime_type, "data": data } }))
        }
        ChatBlock::Other(part) => Some(part.clone()),
        _ => None,
    }
}
