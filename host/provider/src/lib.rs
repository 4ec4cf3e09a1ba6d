//! Model providers over HTTP.
//!
//! ```text
//!  ModelRequest ─► dialect.encode ─► http (key, retries, frames) ─► decoder ─► AssistantMessage
//!                                     │ refused, cut, timed out
//!                                     └─► ProviderError: one reason, by which callers decide
//! ```
//!
//! The crate knows messages, but no sessions. Requests have to satisfy the invariants.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod client;
mod completer;
mod connect;
pub mod embedder;
mod http;
pub mod logprobs;
pub mod refused_answer;
mod runtime_task;
pub mod settings;

pub mod silent_truncation;
pub mod windows;

use std::sync::Arc;

use ctxhost_dialects::ModelRequest;
use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, Result};

pub use client::{ProviderClient, RetryWait};
pub use completer::{CompleterSettings, ModelCompleter};
pub use connect::{connect, resolve_key};
pub use embedder::{
    Embedder, EmbedderError, EndpointEmbedder, EndpointSettings, open_model_folder,
};
pub use http::{ApiKey, ApiKeyError, HttpClient};
pub use logprobs::{LogprobClient, LogprobError, TextScore};
pub use settings::{ConnectError, ProviderSettings};

/// The last requests of sessions.
pub trait PrefixSource: Send + Sync + std::fmt::Debug {
    /// The last request of a session, if this model of this provider has read it.
    fn last_request(&self, session: &str, provider: &str, model: &str)
    -> Option<Arc<ModelRequest>>;
}

/// Completes text by one model.
pub trait Completer: Send + Sync + std::fmt::Debug {
    /// Answers a request, or fails with one of the `Model…` kinds.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
}
