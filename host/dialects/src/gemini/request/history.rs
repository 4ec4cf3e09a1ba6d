//! The conversation as Gemini takes it: calls answered in one turn, in their order, by their names.

use serde_json::{Map, Value, json};

use crate::gemini::{API, OWN_ID, is_third, name};
use crate::message::{AssistantMessage, Content, as_object};
use crate::pairing::{Answered, BOOTSTRAP, CONTINUE, NO_RESULT, Step, is_blank, steps, tool_name};
use crate::request::ModelRequest;

/// What stands where a signature is missing that cannot be had again (G-7).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// What can be seen at all.
const IMAGE_TYPES: [&str; 5] =
    ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// One turn.
#[derive(Debug)]
pub(super) struct Turn {
    speaker: Speaker,
    /// Never none.
    parts: Vec<Value>,
}

/// Who speaks. The person and the tools have one role and two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    Person,
    Model,
    Tools,
}

impl From<Turn> for Value {
    fn from(turn: Turn) -> Value {
        let role = if turn.speaker == Speaker::Model { "model" } else { "user" };
        json!({ "role": role, "parts": turn.parts })
    }
}

/// The contents of a request.
pub(super) fn contents(request: &ModelRequest) -> Vec<Turn> {
    let scribe = Scribe { model: name(&request.model), third: is_third(&request.model) };
    let mut history = History::default();
    for step in steps(&request.messages, wire_id) {
        match step {
            Step::Person(content) => history.push(Speaker::Person, scribe.person(content)),
            Step::Model { message, calls } => {
                history.push(Speaker::Model, scribe.model(message, &calls));
                let (responses, images) = scribe.responses(&calls);
                history.push(Speaker::Tools, responses);
                history.push(Speaker::Person, images);
            }
        }
    }
    let mut turns = history.closed();
    if scribe.third {
        sign(&mut turns);
    }
    turns
}

/// Turns that are still added to. Equal neighbours become one, except those of the tools: two of them
/// never meet, since a turn of calls stands between.
#[derive(Default)]
struct History {
    turns: Vec<Turn>,
}

impl History {
    fn push(&mut self, speaker: Speaker, mut parts: Vec<Value>) {
        match self.turns.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.speaker == speaker => last.parts.append(&mut parts),
            _ => self.turns.push(Turn { speaker, parts }),
        }
    }

    /// Begins and ends with the person or the tools (G-2).
    fn closed(mut self) -> Vec<Turn> {
        if self.turns.first().is_none_or(|first| first.speaker == Speaker::Model) {
            let parts = vec![json!({ "text": BOOTSTRAP })];
            self.turns.insert(0, Turn { speaker: Speaker::Person, parts });
        }
        if self.turns.last().is_some_and(|last| last.speaker == Speaker::Model) {
            self.push(Speaker::Person, vec![json!({ "text": CONTINUE })]);
        }
        self.turns
    }
}

/// Writes parts for one model.
struct Scribe<'a> {
    model: &'a str,
    third: bool,
}

impl Scribe<'_> {
    fn person(&self, content: &[Content]) -> Vec<Value> {
        let part = |block: &Content| match block {
            Content::Text { text, .. } => Some(json!({ "text": text })).filter(|_| !is_blank(text)),
            Content::Image { data, mime_type } => Some(image(data, mime_type)),
            _ => None,
        };
        content.iter().filter_map(part).collect()
    }

    fn model(&self, message: &AssistantMessage, calls: &[Answered<'_>]) -> Vec<Value> {
        let is_own = message.api == API && is_same_model(name(&message.model), self.model);
        let mut calls = calls.iter();
        let part = |block: &Content| match block {
            Content::Text { text, text_signature } => {
                let signature = usable(text_signature, is_own);
                let says_something = !is_blank(text) || signature.is_some();
                says_something.then(|| signed(json!({ "text": text }), signature))
            }
            Content::Thinking { thinking, thinking_signature, .. } => {
                let signature = usable(thinking_signature, is_own)?;
                Some(signed(json!({ "text": thinking, "thought": true }), Some(signature)))
            }
            Content::ToolCall(call) => {
                let signature = usable(&call.thought_signature, is_own);
                calls.next().map(|answered| signed(self.call(answered), signature))
            }
            Content::ProviderItem { api, item } => {
                Some(item.clone()).filter(|_| api == API && is_own)
            }
            Content::Image { .. } | Content::Other(_) => None,
        };
        message.content.iter().filter_map(part).collect()
    }

    fn call(&self, answered: &Answered<'_>) -> Value {
        let mut call = self.head(answered);
        call.insert("args".into(), as_object(&answered.call.arguments).into());
        json!({ "functionCall": call })
    }

    /// The answers to all calls of a message, and the images that cannot stand in them (G-12).
    fn responses(&self, calls: &[Answered<'_>]) -> (Vec<Value>, Vec<Value>) {
        let mut images = Vec::new();
        let responses = calls.iter().map(|answered| self.response(answered, &mut images)).collect();
        (responses, images)
    }

    fn response(&self, answered: &Answered<'_>, images: &mut Vec<Value>) -> Value {
        let shown = answered.result.map(|result| self.person(&result.content)).unwrap_or_default();
        let (texts, mut media): (Vec<_>, Vec<_>) =
            shown.into_iter().partition(|part| part.get("text").is_some());
        let texts: Vec<_> =
            texts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
        let response = match answered.result {
            None => json!({ "error": NO_RESULT }),
            Some(result) if result.is_error => json!({ "error": texts.join("\n") }),
            Some(_) => json!({ "output": texts.join("\n") }),
        };
        let mut head = self.head(answered);
        head.insert("response".into(), response);
        if self.third && !media.is_empty() {
            head.insert("parts".into(), media.into());
        } else {
            images.append(&mut media);
        }
        json!({ "functionResponse": head })
    }

    /// What a call and its response have in common (G-6).
    fn head(&self, answered: &Answered<'_>) -> Map<String, Value> {
        let mut head = Map::new();
        if self.third || !answered.call.id.starts_with(OWN_ID) {
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
fn sign(turns: &mut [Turn]) {
    let spoken = turns.iter().rposition(is_spoken).unwrap_or_default();
    for turn in turns.iter_mut().skip(spoken).filter(|turn| turn.speaker == Speaker::Model) {
        let mut calls = turn.parts.iter_mut().filter(|part| part.get("functionCall").is_some());
        if let Some(Value::Object(first)) = calls.next() {
            first.entry("thoughtSignature").or_insert_with(|| NO_SIGNATURE.into());
        }
    }
}

/// Whether the person said something in a turn. One of images alone may belong to results, and a
/// signature too many does no harm.
fn is_spoken(turn: &Turn) -> bool {
    turn.speaker == Speaker::Person && turn.parts.iter().any(|part| part.get("text").is_some())
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
