//! Models behind a wire: what the host asks for text.

mod openai;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, Result};

pub use openai::{OpenAiCompleter, OpenAiSettings};

/// Asks one model for text. Holds the key; nobody above it sees it.
pub trait Completer: Send + Sync + std::fmt::Debug {
    /// Answers a request, or fails with one of the `Model…` kinds.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>>;
}
