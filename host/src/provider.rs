//! Models behind a wire: one file per dialect, one wire around all of them.
//!
//! ```text
//!  ModelRequest ─► dialect.encode ─► wire (key, retries, frames) ─► dialect.decoder ─► AssistantMessage
//!                                      │ refused, cut, silent
//!                                      └─► failure: one Reason, by which the runtime decides
//! ```
//!
//! The room knows messages, not sessions: what the law has passed comes in, what is stored goes out.

mod anthropic;
mod gemini;
mod openai;
mod round;
mod schema;

#[cfg(test)]
mod conversations;

pub mod client;
pub mod dialect;
pub mod failure;
pub mod message;
pub mod request;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, Result};

pub use anthropic::{Anthropic, ContextEditing};
pub use client::Client;
pub use dialect::Dialect;
pub use failure::{ProviderError, Reason};
pub use gemini::Gemini;
pub use message::{AssistantMessage, ChatMessage, Content};
pub use openai::{OpenAiCompleter, OpenAiSettings};
pub use request::{ModelRequest, StreamPart, ThinkingLevel};

/// Asks one model for text. Holds the key; nobody above it sees it.
pub trait Completer: Send + Sync + std::fmt::Debug {
    /// Answers a request, or fails with one of the `Model…` kinds.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
}
