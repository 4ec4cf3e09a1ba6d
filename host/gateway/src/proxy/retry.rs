//! Retries a request that its upstream rejected: smaller, or without thinking.

use std::sync::Arc;

use super::blocking_pool::{is_large, run_blocking};
use super::client_errors::{self, OverflowSize};
use super::core::Proxy;
use super::ingest::{IngestedRequest, RequestMeta};
use super::request::{InFlightRequest, ProxyAction, ProxyRequest};
use super::shaping::ParsedRequest;
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_context::Target;
use ctxhost_conversations::RequestItems;
use ctxhost_dialects::{FailureReason, ProviderError};
use ctxhost_models::ContextWindow;

/// A retry that could not be shaped.
struct ReshapeError {
    error: TurnError,
    request: ProxyRequest,
    session: String,
}

impl Proxy {
    /// Handles an upstream error that arrived before the client got any byte of a response. An overflow is retried
    /// smaller or becomes an overflow error in the client's dialect; a malformed history is retried without thinking.
    /// `None` forwards the upstream's own error.
    pub async fn handle_refusal(
        self: &Arc<Self>,
        in_flight: InFlightRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        if let Some(stored) = &in_flight.stored_request {
            return self.retry_stored(stored, failure);
        }
        let request = *in_flight.request?;
        if !is_large(&request.client_request) {
            return self.retry(request, failure).await;
        }
        let (proxy, failure) = (self.clone(), failure.clone());
        run_blocking(async move { proxy.retry(request, &failure).await }).await
    }

    async fn retry(
        self: &Arc<Self>,
        request: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        match failure.reason {
            FailureReason::ContextOverflow => self.retry_smaller(request, failure).await,
            FailureReason::MalformedHistory => self.retry_without_thinking(request, failure).await,
            _ => None,
        }
    }

    async fn retry_smaller(
        self: &Arc<Self>,
        mut request: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        let mut guard = self.lock_conversation(&request.conversation).await?;
        let before = request.sent_body.clone();
        let sent = (request.sent_tokens, before.len() as u64);
        let overflow = guard.overflow(&mut request.target, sent, failure)?;
        // A ceiling is the key's tokens per minute, not the model's window.
        let limit_tokens = failure.limit_tokens.filter(|tokens| *tokens > 0);
        if let Some(limit_tokens) = limit_tokens.filter(|_| !failure.is_ceiling) {
            let tokens = limit_tokens.min(request.window.tokens);
            request.window = ContextWindow { tokens, is_certain: true, ..request.window };
        }
        request.refusals += 1;
        if request.refusals > self.settings.too_large_tries {
            return give_up(&request, guard.session_id(), failure);
        }
        request.output_cap_tokens = overflow.max_output_tokens.or(request.output_cap_tokens);
        let (target, window_tokens) = (&mut request.target, request.window.tokens);
        target.reserve_tokens =
            target.reserve_tokens.map(|tokens| self.reserve_tokens(tokens, window_tokens));
        match self.reshape(request, Some(guard)).await? {
            // Nothing was left out, so the upstream would refuse the same bytes again.
            Ok(ProxyAction::Forward(forward))
                if failure.is_byte_limit && forward.has_body(&before) =>
            {
                None
            }
            Ok(action) => Some(action),
            Err(ReshapeError { error, request, session }) if self.is_fatal(&error) => {
                let endpoint = &request.client_request.endpoint;
                Some(ProxyAction::Respond(self.engine_failed(&error, endpoint, &session)))
            }
            Err(ReshapeError { error, request, session }) => {
                tracing::warn!(%error, session, "overflow retry failed: no smaller form of the request fits");
                give_up(&request, &session, failure)
            }
        }
    }

    /// Retries a rendered history that the upstream rejected, without any thinking: signed thinking may be bound to the
    /// messages before it (rules in `tests/src/rules/memory/anthropic.rs`).
    async fn retry_without_thinking(
        self: &Arc<Self>,
        mut request: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        let is_bound = request.client_request.endpoint.inbound().has_bound_thinking();
        // A history that was sent as the client wrote it is the client's to fix.
        let is_client_history = request.sent_body == request.client_request.body;
        if !is_bound || request.without_thinking || is_client_history {
            return None;
        }
        tracing::info!(
            failure = self.log_text(failure),
            "the upstream rejected the rendered history: retrying without thinking"
        );
        request.without_thinking = true;
        let before = request.sent_body.clone();
        let guard = self.lock_conversation(&request.conversation).await;
        match self.reshape(request, guard).await? {
            // Nothing was removed, so the upstream would reject it again.
            Ok(ProxyAction::Forward(forward)) if forward.has_body(&before) => None,
            Ok(action) => Some(action),
            Err(ReshapeError { error, session, .. }) => {
                tracing::warn!(%error, session, "retry without thinking failed: the upstream's error is forwarded");
                None
            }
        }
    }

    /// Shapes a request again for its changed target. If its conversation has continued meanwhile, the request is
    /// ingested again and becomes a fork. `None` if that fails.
    async fn reshape(
        self: &Arc<Self>,
        request: ProxyRequest,
        guard: Option<SessionGuard>,
    ) -> Option<Result<ProxyAction, ReshapeError>> {
        let client_request = request.client_request.clone();
        let json = std::str::from_utf8(&client_request.body).ok()?;
        let inbound = client_request.endpoint.inbound();
        let body = client_request.endpoint.parse_body(json).ok()?;
        let parsed = ParsedRequest { inbound, bytes: &client_request.body, json, body: &body };
        let is_unchanged = request.conversation.state().known.len() == body.items.len();
        let mut ingested = match guard.filter(|_| is_unchanged) {
            Some(guard) => IngestedRequest {
                conversation: request.conversation.clone(),
                session: guard.session_id().to_owned(),
                guard,
                ended_turn: None,
                client_compacts: request.client_compacts,
                is_repeat: true,
            },
            None => {
                let mut request_items = RequestItems::new(self.seed, &body.items);
                let key = request.conversation.key();
                let meta = RequestMeta {
                    inbound,
                    headers: &client_request.headers,
                    key,
                    scope: None,
                    // Its conversation is known.
                    ignored_items: &[],
                    provider_compacts: body.provider_edits.may_compact,
                };
                self.ingest(&meta, &mut request_items).await.ok()?
            }
        };
        let compaction = self.compaction_policy(ingested.guard.context(), request.is_fit_only);
        let target = Target { compaction, ..request.target };
        let request =
            ProxyRequest { conversation: ingested.conversation.clone(), target, ..request };
        if request.without_thinking {
            let groups = ingested.conversation.state().known.groups().len();
            self.refuse_thinking(&ingested.session, groups);
        }
        Some(match self.shape_and_lower(&mut ingested, parsed, &request).await {
            Ok(shaped) => {
                if shaped.report.compaction == "applied" {
                    self.persist(&mut ingested).await;
                }
                let target = request.target.clone();
                self.finish_request(&request.client_request, ingested, target);
                Ok(shaped.forward(request))
            }
            Err(error) => {
                self.warn_small_window(&error, &request.target.model);
                Err(ReshapeError { error, request, session: ingested.session.clone() })
            }
        })
    }
}

/// The overflow error for a request that stays too large; `None` forwards the upstream's own error, because that one
/// has no evidence of an overflow, or speaks of bytes: a client that is given a number of tokens would fold a history that fits.
fn give_up(request: &ProxyRequest, session: &str, failure: &ProviderError) -> Option<ProxyAction> {
    if failure.is_byte_limit || !failure.has_overflow_evidence() {
        return None;
    }
    let conversation_tokens = request.sent_tokens;
    let estimated = conversation_tokens.saturating_add(request.target.overhead_tokens);
    let tokens = failure.observed_tokens.unwrap_or(estimated);
    let size = OverflowSize { conversation_tokens, tokens };
    Some(ProxyAction::Respond(client_errors::overflow(request, session, size)))
}

#[cfg(test)]
mod tests;
