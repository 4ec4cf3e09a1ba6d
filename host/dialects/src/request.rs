//! A request to a model, independent of any dialect.

use ctxhost_engine_api::ToolSpec;
use serde::{Deserialize, Serialize};

use crate::message::ChatMessage;

/// The longest cache key that OpenAI accepts, in characters.
const CACHE_KEY_MAX_CHARS: usize = 64;

/// One request. Its messages satisfy the invariants: every call has its result, every result its
/// call.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// The model, as the provider writes it.
    pub model: String,
    /// The system prompt; empty for none.
    pub system: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools that may be called.
    pub tools: Vec<ToolSpec>,
    /// The limit of the answer, in provider tokens.
    pub max_output_tokens: u64,
    /// The context window, in provider tokens; 0 if unknown. Ollama allocates as much.
    pub window_tokens: u64,
    /// How much the model thinks.
    pub thinking: ThinkingLevel,
    /// `None` for the provider's default.
    pub temperature: Option<f32>,
    /// Keeps the requests of a session in one prompt cache: the session's id.
    pub cache_key: String,
}

impl ModelRequest {
    /// The cache key as OpenAI's APIs accept it; `None` without one.
    pub(crate) fn wire_cache_key(&self) -> Option<String> {
        let key: String = self.cache_key.chars().take(CACHE_KEY_MAX_CHARS).collect();
        (!key.is_empty()).then_some(key)
    }
}

/// How much a model thinks before it answers, in Pi's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// No thinking, or the provider's default.
    #[default]
    Off,
    /// A little.
    Low,
    /// A medium amount.
    Medium,
    /// A lot.
    High,
}

impl ThinkingLevel {
    /// The level as most APIs name it; `None` for no thinking.
    pub(crate) fn effort(self) -> Option<&'static str> {
        match self {
            ThinkingLevel::Off => None,
            ThinkingLevel::Low => Some("low"),
            ThinkingLevel::Medium => Some("medium"),
            ThinkingLevel::High => Some("high"),
        }
    }
}

/// A part of an answer that is still streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart<'a> {
    /// More text.
    Text(&'a str),
    /// More thinking.
    Thinking(&'a str),
    /// A tool call starts.
    ToolCall {
        /// The tool's name.
        name: &'a str,
    },
}
