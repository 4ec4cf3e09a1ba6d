//! Writes the conversation as Gemini's contents.

use serde_json::{Map, Value, json};

use crate::gemini::signatures::{sign_first_call, starts_turn};
use crate::gemini::{API, GENERATED_ID_PREFIX, is_gemini_3, path_name};
use crate::json::text;
use crate::message::{AssistantMessage, ChatBlock, arguments_object};
use crate::pairing::{ConversationStep, NO_RESULT, PairedCall, is_blank, pair_messages};
use crate::request::ModelRequest;
use crate::tool_name::legalize_tool_name;
use crate::turns::{RoleTurn, TurnList};

/// The image types that the API accepts.
const IMAGE_TYPES: [&str; 5] =
    ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// The role of a turn. User and tools share the role `user`, but not a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnRole {
    User,
    Model,
    Tools,
}

impl From<RoleTurn<TurnRole>> for Value {
    fn from(turn: RoleTurn<TurnRole>) -> Value {
        let role = if turn.role == TurnRole::Model { "model" } else { "user" };
        json!({ "role": role, "parts": turn.parts })
    }
}

/// The contents of a request.
pub(super) fn contents(request: &ModelRequest) -> Vec<RoleTurn<TurnRole>> {
    let writer =
        PartWriter { model: path_name(&request.model), is_gemini_3: is_gemini_3(&request.model) };
    let mut turns = TurnList::new();
    // A call needs an id, even if the session has none (G-6).
    let wire_id = |id: &str| if id.is_empty() { "call".to_owned() } else { id.to_owned() };
    for step in pair_messages(&request.messages, wire_id) {
        match step {
            ConversationStep::User(content) => {
                turns.push(TurnRole::User, writer.user_parts(content));
            }
            ConversationStep::Assistant { message, calls } => {
                turns.push(TurnRole::Model, writer.model_parts(message, &calls));
                let (responses, images) = writer.responses(&calls);
                turns.push(TurnRole::Tools, responses);
                turns.push(TurnRole::User, images);
            }
        }
    }
    // Starts and ends with a turn of the user or the tools (G-2).
    let mut turns = turns.close(TurnRole::User, TurnRole::Model, |text| json!({ "text": text }));
    if writer.is_gemini_3 {
        sign_calls(&mut turns);
    }
    turns
}

/// Writes parts for one model.
struct PartWriter<'a> {
    model: &'a str,
    is_gemini_3: bool,
}

impl PartWriter<'_> {
    fn user_parts(&self, content: &[ChatBlock]) -> Vec<Value> {
        let part = |block: &ChatBlock| match block {
            ChatBlock::Text { text, .. } => {
                Some(json!({ "text": text })).filter(|_| !is_blank(text))
            }
            ChatBlock::Image { data, mime_type } => Some(image(data, mime_type)),
            _ => None,
        };
        content.iter().filter_map(part).collect()
    }

    fn model_parts(&self, message: &AssistantMessage, calls: &[PairedCall<'_>]) -> Vec<Value> {
        let is_own = message.api == API && is_same_model(path_name(&message.model), self.model);
        let mut calls = calls.iter();
        let part = |block: &ChatBlock| match block {
            ChatBlock::Text { text, text_signature } => {
                let signature = valid_signature(text_signature, is_own);
                let has_content = !is_blank(text) || signature.is_some();
                has_content.then(|| signed(json!({ "text": text }), signature))
            }
            ChatBlock::Thinking { thinking, thinking_signature, .. } => {
                let signature = valid_signature(thinking_signature, is_own)?;
                Some(signed(json!({ "text": thinking, "thought": true }), Some(signature)))
            }
            ChatBlock::ToolCall(call) => {
                let signature = valid_signature(&call.thought_signature, is_own);
                calls.next().map(|paired| signed(self.call(paired), signature))
            }
            ChatBlock::ProviderItem { api, item } => {
                Some(item.clone()).filter(|_| api == API && is_own)
            }
            ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
        };
        message.content.iter().filter_map(part).collect()
    }

    fn call(&self, paired: &PairedCall<'_>) -> Value {
        let mut call = self.call_head(paired);
        call.insert("args".into(), arguments_object(&paired.call.arguments).into());
        json!({ "functionCall": call })
    }

    /// The responses to all calls of a message, and the images that responses cannot hold (G-12).
    fn responses(&self, calls: &[PairedCall<'_>]) -> (Vec<Value>, Vec<Value>) {
        let mut images = Vec::new();
        let responses = calls.iter().map(|paired| self.response(paired, &mut images)).collect();
        (responses, images)
    }

    fn response(&self, paired: &PairedCall<'_>, images: &mut Vec<Value>) -> Value {
        let parts = paired.result.map(|result| self.user_parts(&result.content));
        let (texts, mut media): (Vec<_>, Vec<_>) =
            parts.unwrap_or_default().into_iter().partition(|part| part.get("text").is_some());
        let texts: Vec<_> = texts.iter().map(|part| text(part, "text")).collect();
        let response = match paired.result {
            None => json!({ "error": NO_RESULT }),
            Some(result) if result.is_error => json!({ "error": texts.join("\n") }),
            Some(_) => json!({ "output": texts.join("\n") }),
        };
        let mut head = self.call_head(paired);
        head.insert("response".into(), response);
        if self.is_gemini_3 && !media.is_empty() {
            head.insert("parts".into(), media.into());
        } else {
            images.append(&mut media);
        }
        json!({ "functionResponse": head })
    }

    /// The fields that a call and its response share (G-6).
    fn call_head(&self, paired: &PairedCall<'_>) -> Map<String, Value> {
        let mut head = Map::new();
        if self.is_gemini_3 || !paired.call.id.starts_with(GENERATED_ID_PREFIX) {
            head.insert("id".into(), paired.id.clone().into());
        }
        head.insert("name".into(), legalize_tool_name(&paired.call.name).into());
        head
    }
}

/// Whether two names are of one model. Providers answer with a date or version as suffix.
fn is_same_model(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let version = |rest: &str| rest.chars().all(|char| char.is_ascii_digit() || char == '-');
    !short.is_empty() && long.strip_prefix(short).is_some_and(version)
}

/// A signature that may be sent: of this model, and base64 (G-8).
fn valid_signature(signature: &Option<String>, is_own: bool) -> Option<&str> {
    let is_base64 = |text: &str| {
        let digits = text.trim_end_matches('=');
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
        text.len().is_multiple_of(4)
            && text.len() - digits.len() <= 2
            && digits.bytes().all(is_digit)
    };
    signature.as_deref().filter(|text| is_own && !text.is_empty() && is_base64(text))
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let (Some(fields), Some(signature)) = (part.as_object_mut(), signature) {
        fields.insert("thoughtSignature".into(), signature.into());
    }
    part
}

/// Signs the first call of each step since the last user turn (G-7).
fn sign_calls(turns: &mut [RoleTurn<TurnRole>]) {
    let is_start =
        |turn: &RoleTurn<TurnRole>| turn.role == TurnRole::User && starts_turn(&turn.parts);
    let start = turns.iter().rposition(is_start).unwrap_or_default();
    for turn in turns.iter_mut().skip(start).filter(|turn| turn.role == TurnRole::Model) {
        sign_first_call(&mut turn.parts);
    }
}

fn image(data: &str, mime_type: &str) -> Value {
    if IMAGE_TYPES.contains(&mime_type) && !data.is_empty() {
        json!({ "inlineData": { "mimeType": mime_type, "data": data } })
    } else {
        json!({ "text": format!("[{mime_type} left out: it cannot be shown]") })
    }
}
