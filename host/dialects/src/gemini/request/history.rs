//! The conversation as Gemini takes it: calls answered in one turn, in their order, by their names.

use serde_json::{Map, Value, json};

use crate::gemini::{API, GENERATED_ID_PREFIX, is_gemini_3, path_name};
use crate::message::{AssistantMessage, ChatBlock, arguments_object};
use crate::pairing::{
    BOOTSTRAP, CONTINUE, ConversationStep, NO_RESULT, PairedCall, is_blank, pair_messages,
    tool_name,
};
use crate::request::ModelRequest;

/// What stands where a signature is missing that cannot be had again (G-7).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// What can be seen at all.
const IMAGE_TYPES: [&str; 5] =
    ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// One turn.
#[derive(Debug)]
pub(super) struct GeminiTurn {
    role: TurnRole,
    /// Never none.
    parts: Vec<Value>,
}

/// Who speaks. The person and the tools have one role and two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnRole {
    User,
    Model,
    Tools,
}

impl From<GeminiTurn> for Value {
    fn from(turn: GeminiTurn) -> Value {
        let role = if turn.role == TurnRole::Model { "model" } else { "user" };
        json!({ "role": role, "parts": turn.parts })
    }
}

/// The contents of a request.
pub(super) fn contents(request: &ModelRequest) -> Vec<GeminiTurn> {
    let scribe =
        PartWriter { model: path_name(&request.model), is_gemini_3: is_gemini_3(&request.model) };
    let mut history = GeminiHistory::default();
    for step in pair_messages(&request.messages, wire_id) {
        match step {
            ConversationStep::User(content) => {
                history.push(TurnRole::User, scribe.user_parts(content))
            }
            ConversationStep::Assistant { message, calls } => {
                history.push(TurnRole::Model, scribe.model_parts(message, &calls));
                let (responses, images) = scribe.responses(&calls);
                history.push(TurnRole::Tools, responses);
                history.push(TurnRole::User, images);
            }
        }
    }
    let mut turns = history.into_turns();
    if scribe.is_gemini_3 {
        sign(&mut turns);
    }
    turns
}

/// Turns that are still added to. Equal neighbours become one, except those of the tools: two of them
/// never meet, since a turn of calls stands between.
#[derive(Default)]
struct GeminiHistory {
    turns: Vec<GeminiTurn>,
}

impl GeminiHistory {
    fn push(&mut self, speaker: TurnRole, mut parts: Vec<Value>) {
        match self.turns.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == speaker => last.parts.append(&mut parts),
            _ => self.turns.push(GeminiTurn { role: speaker, parts }),
        }
    }

    /// Begins and ends with the person or the tools (G-2).
    fn into_turns(mut self) -> Vec<GeminiTurn> {
        if self.turns.first().is_none_or(|first| first.role == TurnRole::Model) {
            let parts = vec![json!({ "text": BOOTSTRAP })];
            self.turns.insert(0, GeminiTurn { role: TurnRole::User, parts });
        }
        if self.turns.last().is_some_and(|last| last.role == TurnRole::Model) {
            self.push(TurnRole::User, vec![json!({ "text": CONTINUE })]);
        }
        self.turns
    }
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
                let signature = usable(text_signature, is_own);
                let says_something = !is_blank(text) || signature.is_some();
                says_something.then(|| signed(json!({ "text": text }), signature))
            }
            ChatBlock::Thinking { thinking, thinking_signature, .. } => {
                let signature = usable(thinking_signature, is_own)?;
                Some(signed(json!({ "text": thinking, "thought": true }), Some(signature)))
            }
            ChatBlock::ToolCall(call) => {
                let signature = usable(&call.thought_signature, is_own);
                calls.next().map(|answered| signed(self.call(answered), signature))
            }
            ChatBlock::ProviderItem { api, item } => {
                Some(item.clone()).filter(|_| api == API && is_own)
            }
            ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
        };
        message.content.iter().filter_map(part).collect()
    }

    fn call(&self, answered: &PairedCall<'_>) -> Value {
        let mut call = self.call_head(answered);
        call.insert("args".into(), arguments_object(&answered.call.arguments).into());
        json!({ "functionCall": call })
    }

    /// The answers to all calls of a message, and the images that cannot stand in them (G-12).
    fn responses(&self, calls: &[PairedCall<'_>]) -> (Vec<Value>, Vec<Value>) {
        let mut images = Vec::new();
        let responses = calls.iter().map(|answered| self.response(answered, &mut images)).collect();
        (responses, images)
    }

    fn response(&self, answered: &PairedCall<'_>, images: &mut Vec<Value>) -> Value {
        let shown =
            answered.result.map(|result| self.user_parts(&result.content)).unwrap_or_default();
        let (texts, mut media): (Vec<_>, Vec<_>) =
            shown.into_iter().partition(|part| part.get("text").is_some());
        let texts: Vec<_> =
            texts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
        let response = match answered.result {
            None => json!({ "error": NO_RESULT }),
            Some(result) if result.is_error => json!({ "error": texts.join("\n") }),
            Some(_) => json!({ "output": texts.join("\n") }),
        };
        let mut head = self.call_head(answered);
        head.insert("response".into(), response);
        if self.is_gemini_3 && !media.is_empty() {
            head.insert("parts".into(), media.into());
        } else {
            images.append(&mut media);
        }
        json!({ "functionResponse": head })
    }

    /// What a call and its response have in common (G-6).
    fn call_head(&self, answered: &PairedCall<'_>) -> Map<String, Value> {
        let mut head = Map::new();
        if self.is_gemini_3 || !answered.call.id.starts_with(GENERATED_ID_PREFIX) {
            head.insert("id".into(), answered.id.clone().into());
        }
        head.insert("name".into(), tool_name(&answered.call.name).into());
        head
    }
}

/// Whether two names are of one model: providers answer with a date or a number behind it.
fn is_same_model(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let version = |rest: &str| rest.chars().all(|char| char.is_ascii_digit() || char == '-');
    !short.is_empty() && long.strip_prefix(short).is_some_and(version)
}

/// A signature that may be sent: of this model, and base64 (G-8).
fn usable(signature: &Option<String>, is_own: bool) -> Option<&str> {
    let is_base64 = |text: &str| {
        let letters = text.trim_end_matches('=');
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
        text.len().is_multiple_of(4)
            && text.len() - letters.len() <= 2
            && letters.bytes().all(legal)
    };
    signature.as_deref().filter(|text| is_own && !text.is_empty() && is_base64(text))
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let (Some(fields), Some(signature)) = (part.as_object_mut(), signature) {
        fields.insert("thoughtSignature".into(), signature.into());
    }
    part
}

/// Signs the first call of each step since the person last spoke (G-7).
fn sign(turns: &mut [GeminiTurn]) {
    let spoken = turns.iter().rposition(is_spoken).unwrap_or_default();
    for turn in turns.iter_mut().skip(spoken).filter(|turn| turn.role == TurnRole::Model) {
        let mut calls = turn.parts.iter_mut().filter(|part| part.get("functionCall").is_some());
        if let Some(Value::Object(first)) = calls.next() {
            first.entry("thoughtSignature").or_insert_with(|| NO_SIGNATURE.into());
        }
    }
}

/// Whether the person said something in a turn. One of images alone may belong to results, and a
/// signature too many does no harm.
fn is_spoken(turn: &GeminiTurn) -> bool {
    turn.role == TurnRole::User && turn.parts.iter().any(|part| part.get("text").is_some())
}

fn image(data: &str, mime_type: &str) -> Value {
    if IMAGE_TYPES.contains(&mime_type) && !data.is_empty() {
        json!({ "inlineData": { "mimeType": mime_type, "data": data } })
    } else {
        json!({ "text": format!("[{mime_type} left out: it cannot be shown]") })
    }
}

/// An id as it is given; there must be one (G-6).
fn wire_id(id: &str) -> String {
    if id.is_empty() { "call".to_owned() } else { id.to_owned() }
}
