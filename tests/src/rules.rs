//! The numbered rules of five dialects, checked on requests as they arrive. Knows nothing of the host.
//!
//! Each rule is one small function named by its number. What a body alone cannot show (whether a
//! signature is the one that was sent) is kept by [`Memory`]; whether a request fits the window is
//! measured by whoever plays the model (O-11, R-10, the second half of A-22).

// JSON gives null where nothing is; only its own values are written to.
#![allow(clippy::indexing_slicing)]

mod anthropic;
mod gemini;
mod json;
mod memory;
mod ollama;
mod openai_chat;
mod responses;

use axum::http::HeaderMap;
use serde_json::Value;

pub use memory::{Issued, Memory, Part};

/// A dialect on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// `POST /v1/chat/completions`.
    OpenAiChat,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1beta/models/M:streamGenerateContent`.
    Gemini,
    /// `POST /api/chat`.
    Ollama,
}

impl Wire {
    /// All of them.
    pub const ALL: [Wire; 5] =
        [Wire::OpenAiChat, Wire::Responses, Wire::Anthropic, Wire::Gemini, Wire::Ollama];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Wire::OpenAiChat => "openai-chat",
            Wire::Responses => "responses",
            Wire::Anthropic => "anthropic",
            Wire::Gemini => "gemini",
            Wire::Ollama => "ollama",
        }
    }
}

/// A rule that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number, such as `A-5`.
    pub rule: &'static str,
    /// Where in the body, such as `messages.3.content.0`.
    pub at: String,
    /// What is wrong, in the provider's own words where they are known.
    pub why: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, self.at, self.why)
    }
}

/// The rules that a request breaks, in the order of their numbers.
pub fn check(wire: Wire, path: &str, headers: &HeaderMap, body: &Value) -> Vec<Broken> {
    // Gemini counts a whole request inside the request that asks for the count.
    let inner = body.get("generateContentRequest").filter(|_| wire == Wire::Gemini);
    let request = Request { path, headers, body: inner.unwrap_or(body) };
    let mut found = Vec::new();
    for (number, rule) in table(wire) {
        rule(&request, &mut Notes { rule: number, found: &mut found });
    }
    found
}

/// The numbers of the rules that [`check`] knows for a dialect.
pub fn numbers(wire: Wire) -> Vec<&'static str> {
    table(wire).iter().map(|(number, _)| *number).collect()
}

type Rule = (&'static str, fn(&Request<'_>, &mut Notes<'_>));

fn table(wire: Wire) -> &'static [Rule] {
    match wire {
        Wire::OpenAiChat => openai_chat::RULES,
        Wire::Responses => responses::RULES,
        Wire::Anthropic => anthropic::RULES,
        Wire::Gemini => gemini::RULES,
        Wire::Ollama => ollama::RULES,
    }
}

/// What a rule looks at.
struct Request<'a> {
    path: &'a str,
    headers: &'a HeaderMap,
    body: &'a Value,
}

/// Where a rule says what is wrong.
struct Notes<'a> {
    rule: &'static str,
    found: &'a mut Vec<Broken>,
}

impl Notes<'_> {
    fn say(&mut self, at: impl Into<String>, why: impl Into<String>) {
        self.found.push(Broken { rule: self.rule, at: at.into(), why: why.into() });
    }

    fn demand(&mut self, kept: bool, at: impl Into<String>, why: impl Into<String>) {
        if !kept {
            self.say(at, why);
        }
    }
}
