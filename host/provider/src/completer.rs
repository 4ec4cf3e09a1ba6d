//! Completes text by a model, for summaries.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, EngineError, ErrorKind, Result};

use super::client::ProviderClient;
use crate::{Completer, PrefixSource, runtime_task};
use ctxhost_dialects::failure::{FailureReason, ProviderError};
use ctxhost_dialects::message::{AssistantMessage, ChatMessage, StopReason};
use ctxhost_dialects::request::{ModelRequest, StreamPart};

/// The model of a completer, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleterSettings {
    /// The model's name at the provider.
    pub model: String,
    /// Timeout of a request with its retries, in milliseconds.
    pub timeout_ms: u64,
    /// The limit of an answer if the request has none, in provider tokens.
    pub max_output_tokens: u64,
}

/// Completes text by a model of a provider.
#[derive(Clone, Debug)]
pub struct ModelCompleter {
    client: Arc<dyn ProviderClient>,
    settings: CompleterSettings,
    runtime: tokio::runtime::Handle,
    prefixes: Option<Arc<dyn PrefixSource>>,
}

impl ModelCompleter {
    /// A completer whose connections run on `runtime`, whichever thread waits for the answer.
    pub fn new(
        client: Arc<dyn ProviderClient>,
        settings: CompleterSettings,
        runtime: tokio::runtime::Handle,
    ) -> ModelCompleter {
        ModelCompleter { client, settings, runtime, prefixes: None }
    }

    /// Lets requests continue the last request of a session.
    #[must_use]
    pub fn with_prefixes(mut self, prefixes: Arc<dyn PrefixSource>) -> ModelCompleter {
        self.prefixes = Some(prefixes);
        self
    }

    async fn answer(self, request: CompletionRequest) -> Result<Completion> {
        let timeout = Duration::from_millis(self.settings.timeout_ms);
        match tokio::time::timeout(timeout, self.generate(request)).await {
            Ok(answer) => completion(answer.map_err(failure)?),
            Err(_) => {
                let message =
                    format!("the model exceeded the timeout of {} ms", self.settings.timeout_ms);
                Err(EngineError::new(ErrorKind::ModelTimeout, message))
            }
        }
    }

    /// Generates by a continuation of the session's last request if asked to and possible, else by
    /// a request of its own.
    async fn generate(
        &self,
        request: CompletionRequest,
    ) -> std::result::Result<AssistantMessage, ProviderError> {
        let mut ignore_parts = |_: StreamPart<'_>| {};
        if let Some(continuation) = self.continuation_request(&request) {
            match self.client.generate(&continuation, &mut ignore_parts).await {
                // The continuation may not fit, although the session's last request did.
                Err(error) if error.reason == FailureReason::ContextOverflow => {}
                other => return other,
            }
        }
        let request = self.request(request);
        self.client.generate(&request, &mut ignore_parts).await
    }

    /// The last request of the session with the continuation appended.
    fn continuation_request(&self, request: &CompletionRequest) -> Option<ModelRequest> {
        if request.continuation.is_empty() {
            return None;
        }
        let named = Some(&request.model).filter(|model| !model.is_empty());
        let model = named.unwrap_or(&self.settings.model);
        let last =
            self.prefixes.as_ref()?.last_request(&request.session, self.client.name(), model)?;
        // Nothing else may differ, or the request misses the provider's prompt cache.
        let mut continued = ModelRequest::clone(&last);
        continued.messages.push(ChatMessage::from_user_text(&request.continuation));
        Some(continued)
    }

    fn request(&self, request: CompletionRequest) -> ModelRequest {
        let settings = &self.settings;
        let max_output_tokens = match request.max_output_tokens {
            0 => settings.max_output_tokens,
            // An engine may ask for less, never for more than the user pays for.
            asked => asked.min(settings.max_output_tokens),
        };
        let named = Some(request.model).filter(|model| !model.is_empty());
        ModelRequest {
            model: named.unwrap_or_else(|| settings.model.clone()),
            system: request.system,
            messages: vec![ChatMessage::from_user_text(request.prompt)],
            max_output_tokens,
            temperature: request.temperature.map(|temperature| temperature as f32),
            ..ModelRequest::default()
        }
    }
}

impl Completer for ModelCompleter {
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        runtime_task::run(&self.runtime, self.clone().answer(request))
    }
}

/// The text of an answer; an error if it is incomplete or has tool calls.
fn completion(answer: AssistantMessage) -> Result<Completion> {
    let fail = |kind, message: &str| Err(EngineError::new(kind, message));
    if answer.tool_calls().next().is_some() {
        return fail(ErrorKind::ModelToolCall, "the model called a tool instead of answering");
    }
    // Half a summary would pass for a whole one, and lose what it does not reach.
    if answer.stop_reason == StopReason::Length {
        return fail(ErrorKind::ModelLength, "the model's answer was cut at its length limit");
    }
    let text = answer.text();
    if text.trim().is_empty() {
        return fail(ErrorKind::ModelEmpty, "the model answered nothing");
    }
    let named = Some(answer.response_model).filter(|name| !name.is_empty());
    Ok(Completion {
        text,
        model: named.unwrap_or(answer.model),
        input_tokens: answer.usage.prompt_tokens(),
        output_tokens: answer.usage.output,
    })
}

/// The error of a service for a provider's error.
pub(crate) fn failure(error: ProviderError) -> EngineError {
    let kind = match error.reason {
        FailureReason::Auth | FailureReason::AuthPermanent => ErrorKind::ModelAuth,
        FailureReason::RateLimit => ErrorKind::ModelRateLimited,
        FailureReason::Timeout => ErrorKind::ModelTimeout,
        FailureReason::ContextOverflow => ErrorKind::ModelOverflow,
        FailureReason::EmptyResponse => ErrorKind::ModelEmpty,
        FailureReason::Cancelled => ErrorKind::Cancelled,
        _ => ErrorKind::ModelFailed,
    };
    EngineError::new(kind, error.to_string())
}
