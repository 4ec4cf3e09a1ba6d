//! The wire formats of model providers, without sockets, clocks and keys.
//!
//! ```text
//!  ModelRequest  ─► request ─► body     requests to a provider
//!  ModelResponse ◄─ stream  ◄─ frames   its answers: content, usage, errors
//!  entries       ◄► inbound ◄► body     requests of its clients
//! ```
//!
//! Each format is a folder: `request`, `inbound`, `stream`, `errors`, `usage`. `failure` classifies the
//! errors of all of them.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod dialect;
pub mod message;
pub mod name;
pub mod request;
pub mod tool_name;

pub mod anthropic;
pub mod gemini;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;

mod blocks;
pub mod call_id;
pub mod cross_model;
mod json;
mod pairing;
mod schema;
mod turns;

pub mod inbound;

pub mod errors;
pub mod failure;
pub mod frames;
pub mod peek;
pub mod sse;
pub mod surrogates;
pub mod usage;

#[cfg(test)]
mod conversations;

pub use anthropic::{Anthropic, AnthropicInbound, ContextEditing};
pub use dialect::Dialect;
pub use failure::{FailureReason, ProviderError};
pub use gemini::{Gemini, GeminiInbound};
pub use message::{AssistantMessage, ChatBlock, ChatMessage};
pub use name::DialectName;
pub use ollama::{Ollama, OllamaInbound};
pub use openai_chat::{OpenAiChat, OpenAiChatInbound};
pub use openai_responses::{OpenAiResponses, OpenAiResponsesInbound};
pub use request::{ModelRequest, StreamPart, ThinkingLevel};
