//! The wire formats of model providers. Pure: no socket, no clock, no key.
//!
//! ```text
//!  ModelRequest ─► request ─► body     what a provider is sent
//!  Answer       ◄─ stream  ◄─ frames   what it answers: usage, errors
//!  entries      ◄► inbound ◄► body     what its clients send, read and written again
//! ```
//!
//! Each format is a folder: `request`, `inbound`, `stream`, `errors`, `usage`. `failure` says what an error means in any of them.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod dialect;
pub mod message;
pub mod name;
pub mod request;

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

pub mod inbound;

pub mod errors;
pub mod failure;
pub mod frames;
pub mod peek;
pub mod sse;
pub mod usage;

#[cfg(test)]
mod conversations;

pub use anthropic::{Anthropic, AnthropicInbound, ContextEditing};
pub use dialect::Dialect;
pub use failure::{FailureReason, ProviderError};
pub use gemini::{Gemini, GeminiInbound};
pub use message::{AssistantMessage, ChatBlock, ChatMessage};
pub use name::DialectName;
pub use ollama::Ollama;
pub use openai_chat::{OpenAiChat, OpenAiChatInbound};
pub use openai_responses::{OpenAiResponses, OpenAiResponsesInbound};
pub use request::{ModelRequest, StreamPart, ThinkingLevel};
