//! Gemini's API as clients speak it.
//!
//! Calls seldom have ids: a response then refers to the call of its name in the content before it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::signatures::{sign_first_call, starts_turn};
use super::{API, call_of, field, is_gemini_3};
use crate::inbound::{
    InboundDialect, InboundError, ItemCalls, ItemEdit, ItemGroup, LoweredBody, NamedCall,
    ParseContext, ParsedBody, ParsedCalls, ParsedEntry, ProviderEdits, SystemPlace, TurnItem,
    apply_edit, assistant_entry, edit_user_parts, invalid_request, list_span, object_item,
    optional_count, output_limit, raw_fields, raw_items, result_entry, session_id, user_entry,
};
use crate::json::{parse_object, set, string, take, take_text, text, text_or_json};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};

/// `POST /v1beta/models/M:generateContent`, `:streamGenerateContent` and `:countTokens`.
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

/// A request to count tokens that has the whole request in a field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountTokensBody<'a> {
    #[serde(borrow, alias = "generate_content_request")]
    generate_content_request: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(default, alias = "max_output_tokens", deserialize_with = "optional_count")]
    max_output_tokens: Option<u64>,
}

impl InboundDialect for GeminiInbound {
    fn system_place(&self) -> SystemPlace {
        SystemPlace::Parts(["systemInstruction", "system_instruction"])
    }

    /// Model and streaming are named by the path and not by the body.
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire = serde_json::from_str(json).or_else(|error| {
            let Ok(count) = serde_json::from_str::<CountTokensBody<'a>>(json) else {
                return Err(invalid_request(&error, json));
            };
            let request = count.generate_content_request.get();
            serde_json::from_str(request).map_err(|error| invalid_request(&error, request))
        });
        let wire: GeminiBody<'a> = wire?;
        let items = raw_items(&wire.contents);
        Ok(ParsedBody {
            // Both are in the path of a request, not in its body.
            model: Cow::Borrowed(""),
            is_stream: false,
            max_output_tokens: wire.generation_config.and_then(|config| config.max_output_tokens),
            window_tokens: None,
            session_hint: None,
            prompt_parts: raw_fields([wire.system_instruction, wire.tools]).collect(),
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
        let group = |(number, item): (usize, Result<Value, InboundError>)| {
            let mut content = object_item(number, item)?;
            let position = before.items.len() + number;
            Ok(ItemGroup::single(if is_model(&content) {
                let answer = parse_answer(take_parts(&mut content), position);
                calls.add_answer(&answer, position);
                vec![assistant_entry(API, answer)]
            } else {
                parse_user_content(take_parts(&mut content), &mut calls, position)
            }))
        };
        items.enumerate().map(group).collect()
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        // The API accepts both spellings, and clients mix them.
        const PATHS: [&[&str]; 4] = [
            &["generationConfig", "maxOutputTokens"],
            &["generationConfig", "max_output_tokens"],
            &["generation_config", "maxOutputTokens"],
            &["generation_config", "max_output_tokens"],
        ];
        output_limit::lower(json, &PATHS, limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        let content = items.first().and_then(|item| parse_object(item).ok());
        let Some(mut content) = content else { return Vec::new() };
        let parts = take_parts(&mut content);
        // At its old place the list would change the bytes of contents that providers have in their caches.
        content.as_object_mut().and_then(|fields| fields.remove("parts"));
        let parts = if is_model(&content) {
            apply_edit(parts, edits.first(), replace_text, replace_answer)
        } else {
            let is_response = |part: &Value| response_of(part).is_some();
            edit_user_parts(parts, edits, is_response, edit_response, edit_parts)
        };
        if parts.is_empty() {
            return Vec::new();
        }
        set(&mut content, "parts", parts);
        vec![content]
    }

    fn user_item(&self, text: &str) -> Value {
        json!({ "role": "user", "parts": [{ "text": text }] })
    }

    fn assistant_item(&self, text: &str) -> Value {
        json!({ "role": "model", "parts": [{ "text": text }] })
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

    /// Calls follow a user turn (G-3), and one content holds all responses to an answer (G-5).
    fn join_items(&self, first: &mut Value, second: Value) -> Option<Value> {
        if is_model(first) != is_model(&second) {
            return Some(second);
        }
        let mut parts = take_parts(first);
        parts.extend_from_slice(parts_of(&second));
        set(first, "parts", parts);
        None
    }

    fn complete_turn_item(&self, model: &str, item: &mut Value) -> TurnItem {
        if !is_gemini_3(model) || !is_model(item) && starts_turn(parts_of(item)) {
            return TurnItem::Start;
        }
        let is_signed = is_model(item)
            && match item.get_mut("parts") {
                Some(Value::Array(parts)) => sign_first_call(parts),
                Some(part @ Value::Object(_)) => sign_first_call(std::slice::from_mut(part)),
                _ => false,
            };
        if is_signed { TurnItem::Changed } else { TurnItem::Complete }
    }
}

fn is_model(content: &Value) -> bool {
    text(content, "role") == "model"
}

/// The parts of a content; the API reads one part in the place of a list as well.
fn parts_of(content: &Value) -> &[Value] {
    match content.get("parts") {
        Some(Value::Array(parts)) => parts,
        Some(part @ Value::Object(_)) => std::slice::from_ref(part),
        _ => &[],
    }
}

fn take_parts(content: &mut Value) -> Vec<Value> {
    match take(content, "parts") {
        Value::Array(parts) => parts,
        part @ Value::Object(_) => vec![part],
        _ => Vec::new(),
    }
}

fn response_of(part: &Value) -> Option<&Value> {
    field(part, "functionResponse", "function_response")
}

fn read_calls(mut content: Value, position: usize) -> ItemCalls {
    if is_model(&content) {
        return ItemCalls::of_answer(&parse_answer(take_parts(&mut content), position));
    }
    let responses = parts_of(&content).iter().filter_map(response_of);
    ItemCalls::Results(responses.map(call_of_response).collect())
}

/// What a response says of its call.
fn call_of_response(response: &Value) -> NamedCall {
    NamedCall { id: string(response, "id"), name: string(response, "name") }
}

fn parse_answer(parts: Vec<Value>, position: usize) -> Vec<ChatBlock> {
    let mut nth = 0;
    let block = |part: Value| {
        let Some(call) = call_of(&part) else { return parse_part(part) };
        let id = session_id(text(call, "id"), position, nth);
        nth += 1;
        let signature = field(&part, "thoughtSignature", "thought_signature");
        ChatBlock::ToolCall(ToolCallBlock {
            id,
            name: string(call, "name"),
            arguments: call.get("args").cloned().unwrap_or_default(),
            thought_signature: signature.and_then(|text| Some(text.as_str()?.to_owned())),
        })
    };
    parts.into_iter().map(block).collect()
}

fn parse_part(mut part: Value) -> ChatBlock {
    if let Some(text) = take_text(&mut part, "text") {
        let is_thought = part.get("thought") == Some(&Value::Bool(true));
        return if is_thought { ChatBlock::thinking(text, None) } else { ChatBlock::text(text) };
    }
    let Some(inline) = field(&part, "inlineData", "inline_data") else {
        return ChatBlock::Other(part);
    };
    let mime_type = field(inline, "mimeType", "mime_type").and_then(Value::as_str);
    // A recording or a document is larger than an image.
    let Some(mime_type) = mime_type.filter(|kind| kind.starts_with("image/")) else {
        return ChatBlock::Other(part);
    };
    ChatBlock::Image { data: string(inline, "data"), mime_type: mime_type.to_owned() }
}

/// The responses of a user content in order, then one entry for all other parts.
fn parse_user_content(
    parts: Vec<Value>,
    calls: &mut ParsedCalls<'_>,
    position: usize,
) -> Vec<ParsedEntry> {
    let mut entries = Vec::new();
    let mut rest = Vec::new();
    for (nth, part) in parts.into_iter().enumerate() {
        let Some(response) = response_of(&part) else {
            rest.push(parse_part(part));
            continue;
        };
        let NamedCall { id, name } = call_of_response(response);
        let call = calls.answered_by(&id, &name);
        // A response without a call gets an id of its own; the invariants drop it as an orphan.
        let id = call.map_or_else(|| format!("{position}.{nth} unasked"), |call| call.id);
        entries.push(parse_response(response, id, name));
    }
    if !rest.is_empty() || entries.is_empty() {
        entries.push(user_entry(rest));
    }
    entries
}

fn parse_response(wire: &Value, id: String, name: String) -> ParsedEntry {
    let response = wire.get("response");
    // Clients wrap results into `output` or `result`. With other fields beside it, all of them are the result.
    let fields = response.and_then(Value::as_object).filter(|fields| fields.len() == 1);
    let wrapped = fields.and_then(|fields| fields.get("output").or_else(|| fields.get("result")));
    let text = wrapped.or(response).map(text_or_json).unwrap_or_default();
    let is_error = response.is_some_and(|object| object.get("error").is_some());
    let files = parts_of(wire).iter().cloned().map(parse_part);
    let content = [ChatBlock::text(text)].into_iter().chain(files).collect();
    result_entry(id, name, content, is_error)
}

/// Replaces the content of a response; its name and id stay.
fn edit_response(mut part: Value, edit: &ItemEdit<'_>) -> Option<Value> {
    let (text, files) = match edit {
        ItemEdit::Keep => return Some(part),
        ItemEdit::Drop => return None,
        ItemEdit::ReplaceText(text) => (text.to_string(), Vec::new()),
        ItemEdit::ReplaceMessage(message) => {
            let text = |block: &ChatBlock| match block {
                ChatBlock::Text { text, .. } => Some(text.clone()),
                _ => None,
            };
            let texts = message.content().iter().filter_map(text).collect::<Vec<_>>();
            let is_file = |block: &&ChatBlock| !matches!(block, ChatBlock::Text { .. });
            let files = message.content().iter().filter(is_file).filter_map(wire_part).collect();
            (texts.join("\n"), files)
        }
    };
    let fields = ["functionResponse", "function_response"];
    let field = fields.into_iter().find(|field| part.get(field).is_some())?;
    let response = part.get_mut(field).filter(|response| response.is_object())?;
    set(response, "response", json!({ "output": text }));
    if response.get("parts").is_some() {
        set(response, "parts", files);
    }
    Some(part)
}

fn edit_parts(parts: Vec<Value>, edit: Option<&ItemEdit<'_>>) -> Vec<Value> {
    apply_edit(
        parts,
        edit,
        |_, text| vec![json!({ "text": text })],
        |_, message| message.content().iter().filter_map(wire_part).collect(),
    )
}

/// An answer with another text and the same calls.
fn replace_text(parts: Vec<Value>, text: &str) -> Vec<Value> {
    let calls = parts.into_iter().filter(|part| call_of(part).is_some());
    let text = (!text.trim().is_empty()).then(|| json!({ "text": text }));
    text.into_iter().chain(calls).collect()
}

/// An answer with other content; its calls keep their parts, with their signatures.
fn replace_answer(parts: Vec<Value>, message: &ChatMessage) -> Vec<Value> {
    let mut calls = parts.iter().filter(|part| call_of(part).is_some());
    let wire = |block: &ChatBlock| match block {
        ChatBlock::ToolCall(call) => {
            let is_same =
                |part: &&Value| call_of(part).is_some_and(|wire| text(wire, "name") == call.name);
            let mut part = calls.find(is_same)?.clone();
            let field =
                if part.get("functionCall").is_some() { "functionCall" } else { "function_call" };
            let wire = part.get_mut(field).filter(|wire| wire.is_object())?;
            set(wire, "args", call.arguments.clone());
            Some(part)
        }
        other => wire_part(other),
    };
    message.content().iter().filter_map(wire).collect()
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
