//! What a server sent, and whether what comes back is the same: the rules that no body shows alone.
//!
//! One memory serves one server, whatever the number of its sessions.

mod anthropic;
mod gemini;
mod responses;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Broken, Notes, Wire};

/// A part of an answer that the server wants back as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Thinking with its signature; for Responses, a reasoning item with its encrypted content.
    Thinking {
        /// The id of the item; empty where the dialect has none.
        id: String,
        /// What can be read of it.
        text: String,
        /// The signature.
        signature: String,
    },
    /// Text.
    Text {
        /// The id of the item; empty where the dialect has none.
        id: String,
        /// It.
        text: String,
        /// Gemini's signature; empty for none.
        signature: String,
    },
    /// A call.
    Call {
        /// The id of the item; empty where the dialect has none.
        id: String,
        /// The id that the result answers.
        call_id: String,
        /// The tool.
        name: String,
        /// Gemini's signature; empty for none.
        signature: String,
    },
    /// A compaction that the server made.
    Compaction {
        /// What stands for the conversation.
        encrypted: String,
    },
}

/// An answer as the server sent it.
#[derive(Clone, Debug, Default)]
pub struct Issued {
    /// Its id.
    pub response_id: String,
    /// Whether the server keeps it.
    pub is_stored: bool,
    /// Its parts in order.
    pub parts: Vec<Part>,
}

/// What a server sent.
#[derive(Debug, Default)]
pub struct Memory {
    /// Whether thinking is bound to everything before it.
    pub binds_thinking: bool,
    answers: HashMap<String, Answer>,
    /// What each signature was given for: a thinking text, or a tool's name, or nothing.
    signatures: HashMap<String, String>,
    /// The reasoning before an item, by the item's id.
    reasons: HashMap<String, String>,
    stored: HashSet<String>,
}

/// An answer, found again by its calls or its text.
#[derive(Debug)]
struct Answer {
    /// Signatures in order.
    thinking: Vec<String>,
    /// A hash of what stood before it, where that binds.
    prefix: Option<u64>,
}

impl Memory {
    /// An empty one.
    pub fn new(binds_thinking: bool) -> Memory {
        Memory { binds_thinking, ..Memory::default() }
    }

    /// Keeps what is sent in answer to a request.
    pub fn issue(&mut self, wire: Wire, body: &Value, issued: &Issued) {
        if issued.is_stored {
            self.stored.insert(issued.response_id.clone());
        }
        let mut reason = None;
        for part in &issued.parts {
            match part {
                Part::Thinking { id, text, signature } => {
                    reason = Some(id.clone()).filter(|id| !id.is_empty());
                    self.signatures.insert(signature.clone(), text.clone());
                }
                Part::Text { id, signature, .. } => {
                    self.note_reason(id, reason.as_ref());
                    self.signatures.insert(signature.clone(), String::new());
                }
                Part::Call { id, name, signature, .. } => {
                    self.note_reason(id, reason.as_ref());
                    self.signatures.insert(signature.clone(), name.clone());
                }
                Part::Compaction { encrypted } => {
                    self.signatures.insert(encrypted.clone(), String::new());
                }
            }
        }
        if wire == Wire::Anthropic {
            self.issue_anthropic(body, issued);
        }
    }

    /// The rules that a request breaks by what it sends back.
    pub fn check(&self, wire: Wire, body: &Value) -> Vec<Broken> {
        let mut found = Vec::new();
        match wire {
            Wire::Anthropic => self.check_anthropic(body, &mut found),
            Wire::Responses => self.check_responses(body, &mut found),
            Wire::Gemini => self.check_gemini(body, &mut found),
            Wire::OpenAiChat | Wire::Ollama => {}
        }
        found
    }

    /// The numbers of the rules that [`check`](Self::check) knows for a dialect.
    pub fn numbers(wire: Wire) -> &'static [&'static str] {
        match wire {
            Wire::Anthropic => &["A-15", "A-16", "A-17", "A-20", "A-21"],
            Wire::Responses => &["R-4", "R-6", "R-9"],
            Wire::Gemini => &["G-8"],
            Wire::OpenAiChat | Wire::Ollama => &[],
        }
    }

    fn note_reason(&mut self, id: &str, reason: Option<&String>) {
        if let (false, Some(reason)) = (id.is_empty(), reason) {
            self.reasons.insert(id.to_owned(), reason.clone());
        }
    }
}

fn notes<'a>(rule: &'static str, found: &'a mut Vec<Broken>) -> Notes<'a> {
    Notes { rule, found }
}
