//! Models behind a wire: one file per dialect, one wire around all of them.
//!
//! ```text
//!  ModelRequest ─► dialect.encode ─► wire (key, retries, frames) ─► dialect.decoder ─► AssistantMessage
//!                                      │ refused, cut, silent
//!                                      └─► failure: one Reason, by which the runtime decides
//! ```
//!
//! The room knows messages, not sessions: what the law has passed comes in, what is stored goes out.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod client;
pub mod message;
pub mod request;

pub mod anthropic;
pub mod dialect;
pub mod gemini;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;

pub mod call_id;
pub mod foreign;
mod plain;
mod round;
mod schema;

mod completer;
mod connect;
pub mod settings;
mod wire;

pub mod failure;
pub mod truncation;
mod usage;
pub mod windows;

#[cfg(test)]
mod conversations;

use std::sync::Arc;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, Result};

pub use anthropic::{Anthropic, ContextEditing};
pub use client::Client;
pub use completer::{CompleterSettings, ModelCompleter};
pub use connect::{ConnectError, connect, key_of};
pub use dialect::Dialect;
pub use failure::{ProviderError, Reason};
pub use gemini::Gemini;
pub use message::{AssistantMessage, ChatMessage, Content};
pub use ollama::Ollama;
pub use openai_responses::OpenAiResponses;
pub use request::{ModelRequest, StreamPart, ThinkingLevel};
pub use settings::{DialectName, ProviderSettings};
pub use usage::take_usage;
pub use wire::{HttpClient, Key, KeyError};

/// The requests that the models of sessions have read last. Implemented above this room.
pub trait Prefixes: Send + Sync + std::fmt::Debug {
    /// That of a session, where this model of this provider read it.
    fn of(&self, session: &str, provider: &str, model: &str) -> Option<Arc<ModelRequest>>;
}

/// Asks one model for text. Holds the key; nobody above it sees it.
pub trait Completer: Send + Sync + std::fmt::Debug {
    /// Answers a request, or fails with one of the `Model…` kinds.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
}
