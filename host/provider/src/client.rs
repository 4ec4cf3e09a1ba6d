//! The interface of a provider.

use std::time::Duration;

use ctxhost_engine_api::transcript::{Message, tokens};
use futures_util::future::BoxFuture;

use ctxhost_dialects::failure::{FailureReason, ProviderError};
use ctxhost_dialects::message::{AssistantMessage, ChatMessage};
use ctxhost_dialects::request::{ModelRequest, StreamPart};

/// A pause before a request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryWait {
    /// Why the attempt before it failed.
    pub reason: FailureReason,
    /// The length of the pause.
    pub pause: Duration,
    /// The number of the next repetition, from 1.
    pub retry: u64,
    /// The most repetitions.
    pub retries: u64,
}

/// A provider. Dropping a future of it cancels the request.
pub trait ProviderClient: Send + Sync + std::fmt::Debug {
    /// The name in the config.
    fn name(&self) -> &str;

    /// The dialect's name, as sessions write it.
    fn api(&self) -> &'static str;

    /// Generates an answer and passes its parts to `parts`.
    ///
    /// Retries within the settings if the provider is overloaded or asks for a wait. A request is
    /// never retried after its first part.
    ///
    /// # Errors
    ///
    /// [`ProviderError`] of the last attempt.
    fn generate<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>>;

    /// [`generate`](Self::generate) that reports each pause before a repetition to `on_wait`.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate).
    fn generate_with_waits<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
        _on_wait: &'a (dyn Fn(RetryWait) + Send + Sync),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>> {
        // For providers that never wait.
        self.generate(request, parts)
    }

    /// Counts the prompt tokens of a request: by the provider, or estimated if it cannot.
    ///
    /// # Errors
    ///
    /// [`ProviderError`].
    fn count_tokens<'a>(
        &'a self,
        request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<u64, ProviderError>> {
        let count = estimate_tokens(request);
        Box::pin(async move { Ok(count) })
    }

    /// Queries the window of a model once, in provider tokens; `None` if the provider does not
    /// state it.
    ///
    /// # Errors
    ///
    /// [`ProviderError`].
    fn query_window<'a>(
        &'a self,
        _model: &'a str,
    ) -> BoxFuture<'a, Result<Option<u64>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }

    /// Lets the provider compact the history of a request. The result replaces the history, for the
    /// same model only. `None` if the provider has no compaction.
    ///
    /// # Errors
    ///
    /// [`ProviderError`] of the last attempt.
    fn compact<'a>(
        &'a self,
        _request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<Option<Vec<ChatMessage>>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }
}

/// Estimates the prompt tokens of a request.
pub(super) fn estimate_tokens(request: &ModelRequest) -> u64 {
    let message_tokens = |message: &ChatMessage| {
        let raw = serde_json::to_string(message).unwrap_or_default();
        tokens::message(&Message::parse(&raw, ""))
    };
    let tools = serde_json::to_string(&request.tools).unwrap_or_default();
    let messages = request.messages.iter().map(message_tokens).sum::<u64>();
    tokens::estimate(&request.system) + messages + tokens::estimate(&tools)
}
