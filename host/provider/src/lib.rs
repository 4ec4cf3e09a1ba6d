//! Models behind a wire: one wire around every dialect.
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
mod completer;
mod connect;
mod http;
pub mod settings;

pub mod silent_truncation;
pub mod windows;

use std::sync::Arc;

use ctxhost_dialects::ModelRequest;
use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, Result};

pub use client::ProviderClient;
pub use completer::{CompleterSettings, ModelCompleter};
pub use connect::{ConnectError, connect, resolve_key};
pub use http::{ApiKey, ApiKeyError, HttpClient};
pub use settings::ProviderSettings;

/// The requests that the models of sessions have read last. Implemented above this room.
pub trait PrefixSource: Send + Sync + std::fmt::Debug {
    /// That of a session, where this model of this provider read it.
    fn last_request(&self, session: &str, provider: &str, model: &str)
    -> Option<Arc<ModelRequest>>;
}

/// Asks one model for text. Holds the key; nobody above it sees it.
pub trait Completer: Send + Sync + std::fmt::Debug {
    /// Answers a request, or fails with one of the `Model…` kinds.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
}
