//! Parses requests and renders answers, one module for each dialect.

mod anthropic;
mod gemini;
mod ollama;
mod openai_chat;
mod refusal;
mod responses;

use serde_json::{Value, json};

use super::answer::Answer;
use super::model::OverflowForm;
use super::script::{Offer, Said, Speaker};
use crate::rules::Wire;
pub(super) use refusal::{Refusal, Trouble};

/// A dialect, from the server's side.
pub(super) trait Speech: Send + Sync {
    /// What is at a path, without what stands behind a question mark.
    fn endpoint(&self, path: &str) -> Option<Endpoint>;

    /// Whether the client wants a stream.
    fn streams(&self, inquiry: &Inquiry<'_>) -> bool {
        inquiry.body["stream"] == true
    }

    /// The model asked for.
    fn model(&self, inquiry: &Inquiry<'_>) -> String {
        string(&inquiry.body["model"])
    }

    /// The longest answer asked for, in tokens.
    fn output_tokens(&self, body: &Value) -> Option<u64>;

    /// The window that the client asks for, in tokens, where it may.
    fn window_tokens(&self, _body: &Value) -> Option<u64> {
        None
    }

    /// The conversation.
    fn said(&self, body: &Value) -> Vec<Said>;

    /// The tools offered.
    fn tools(&self, body: &Value) -> Vec<Offer>;

    /// Whether the prompt is cached, and whether writing to the cache is counted.
    fn caching(&self, _body: &Value) -> Caching {
        Caching::Automatic
    }

    /// What ids begin with: of an answer, and of a call.
    fn prefixes(&self) -> (&'static str, &'static str);

    /// Whether the first call of each answer is signed, for a model.
    fn signs_calls(&self, _model: &str) -> bool {
        false
    }

    /// The type of a stream.
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// A stream.
    fn frames(&self, answer: &Answer, inquiry: &Inquiry<'_>, pieces: &mut Pieces<'_>)
    -> Vec<Frame>;

    /// The same as one body.
    fn whole(&self, answer: &Answer, inquiry: &Inquiry<'_>) -> Value;

    /// A count of tokens.
    fn counted(&self, tokens: u64) -> Value;

    /// An error before the answer.
    fn refuse(&self, trouble: &Trouble) -> Refusal;

    /// An error inside a stream, which ends with it.
    fn break_off(&self, answer: &Answer, trouble: &Trouble) -> Broke;

    /// The body without the oldest message that may be forgotten, where the server forgets.
    fn forget(&self, _body: &Value) -> Option<Value> {
        None
    }
}

/// The dialect of a wire.
pub(super) fn of(wire: Wire) -> &'static dyn Speech {
    match wire {
        Wire::OpenAiChat => &openai_chat::OpenAiChat,
        Wire::Responses => &responses::Responses,
        Wire::Anthropic => &anthropic::Anthropic,
        Wire::Gemini => &gemini::Gemini,
        Wire::Ollama => &ollama::Ollama,
    }
}

/// What is asked at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Answer,
    Count,
    Compact,
}

/// A request to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inquiry<'a> {
    /// With what stands behind a question mark.
    pub(super) path: &'a str,
    pub(super) body: &'a Value,
}

/// What a prompt cache does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    Off,
    /// Reads are counted.
    Automatic,
    /// Reads and writes are counted.
    Marked,
}

/// One frame of a stream.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) text: String,
    /// Whether it holds text of the answer.
    pub(super) is_said: bool,
}

/// How a stream ends when something goes wrong inside it.
#[derive(Clone, Debug)]
pub(super) enum Broke {
    /// With this frame.
    Frame(Frame),
    /// As if the answer were over: Anthropic's stop reason for a full window.
    Stop,
}

/// An event with a name.
fn event(name: &str, data: &Value) -> Frame {
    Frame { text: format!("event: {name}\ndata: {data}\n\n"), is_said: false }
}

/// An event without one.
fn data(data: &Value) -> Frame {
    Frame { text: format!("data: {data}\n\n"), is_said: false }
}

/// A line.
fn line(data: &Value) -> Frame {
    Frame { text: format!("{data}\n"), is_said: false }
}

impl Frame {
    fn said(mut self) -> Frame {
        self.is_said = true;
        self
    }
}

/// Cuts texts into pieces as a model writes them.
#[derive(Debug)]
pub(super) struct Pieces<'a>(pub(super) &'a mut fastrand::Rng);

impl Pieces<'_> {
    fn of(&mut self, text: &str) -> Vec<String> {
        let mut left = text.chars().peekable();
        let mut pieces = Vec::new();
        while left.peek().is_some() {
            let chars = self.0.usize(1..24);
            pieces.push(left.by_ref().take(chars).collect());
        }
        pieces
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The texts of a content: a text, or blocks that hold texts.
fn texts(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let inner = |block: &Value| match block.get("text") {
                Some(text) => string(text),
                None => texts(&block["content"]),
            };
            blocks.iter().map(inner).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn offer(tool: &Value, schema: &str) -> Offer {
    Offer { name: string(&tool["name"]), schema: tool[schema].clone() }
}

fn speaker(role: &str) -> Speaker {
    match role {
        "system" | "developer" => Speaker::System,
        "assistant" | "model" => Speaker::Assistant,
        "tool" => Speaker::Tool,
        _ => Speaker::User,
    }
}

/// The envelope of OpenAI's errors.
fn openai_error(message: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
