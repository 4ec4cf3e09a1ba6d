//! What is asked of a model, in no dialect yet.

use ctxhost_engine_api::ToolSpec;
use serde::{Deserialize, Serialize};

use crate::message::ChatMessage;

/// One request. Its messages obey the law already: every call has its result, nothing is orphaned.
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
    /// The upper limit of the answer, in provider tokens.
    pub max_output_tokens: u64,
    /// The context window, in provider tokens; Ollama must be told of it. 0 where nobody knows.
    pub window_tokens: u64,
    /// How much the model should think.
    pub thinking: ThinkingLevel,
    /// `None` for the provider's default.
    pub temperature: Option<f32>,
    /// What keeps the prompt cache of one session together: its id, at most 64 characters are sent.
    pub cache_key: String,
}

/// How much a model should think before it answers, in Pi's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// Not at all, or as the provider does by itself.
    #[default]
    Off,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// A lot.
    High,
}

/// A piece of an answer that is still coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart<'a> {
    /// More text.
    Text(&'a str),
    /// More thinking.
    Thinking(&'a str),
    /// A tool call has begun.
    ToolCall {
        /// The tool's name.
        name: &'a str,
    },
}
