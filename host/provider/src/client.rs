//! A provider that can be asked: what the runtime sees of it.

use ctxhost_engine_api::transcript::tokens;
use futures_util::future::BoxFuture;

use ctxhost_dialects::failure::ProviderError;
use ctxhost_dialects::message::{AssistantMessage, ChatMessage};
use ctxhost_dialects::request::{ModelRequest, StreamPart};

/// A provider. Dropping a future of it gives the request up.
pub trait ProviderClient: Send + Sync + std::fmt::Debug {
    /// Its name in the config.
    fn name(&self) -> &str;

    /// The name of its dialect, as sessions write it.
    fn api(&self) -> &'static str;

    /// Asks a model; `parts` hears the answer while it comes.
    ///
    /// Waits and asks again where the provider says so or where it is overloaded, within the settings.
    /// A request of which parts were heard is never repeated.
    ///
    /// # Errors
    ///
    /// [`ProviderError`], of the last attempt.
    fn generate<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>>;

    /// The prompt tokens of a request, counted by the provider where it can, or estimated.
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

    /// The window of a model as the provider states it, in provider tokens; `None` where it says nothing.
    /// Asks once.
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

    /// The conversation of a request as the provider itself compacts it: the messages that stand in its
    /// place from then on, for the same model alone. `None` where the provider compacts nothing.
    ///
    /// # Errors
    ///
    /// [`ProviderError`], of the last attempt.
    fn compact<'a>(
        &'a self,
        _request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<Option<Vec<ChatMessage>>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }
}

/// The prompt tokens of a request, estimated.
pub(super) fn estimate_tokens(request: &ModelRequest) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| message.content());
    let said = serde_json::to_string(&blocks.collect::<Vec<_>>()).unwrap_or_default();
    let tools = serde_json::to_string(&request.tools).unwrap_or_default();
    tokens::estimate(&request.system) + tokens::estimate(&said) + tokens::estimate(&tools)
}
