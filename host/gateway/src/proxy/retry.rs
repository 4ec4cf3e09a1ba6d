//! A request that its upstream refused goes out in another form, or is refused in words that its client knows.

use std::sync::Arc;

use super::client_errors::{self, RequestOverflow};
use super::core::Proxy;
use super::ingest::{IngestedRequest, RequestMeta};
use super::request::{ProxyRequest, forward};
use super::shaping::ParsedRequest;
use super::{ProxyAction, ShapingReport};
use crate::conversations::RequestItems;
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_context::Target;
use ctxhost_dialects::{FailureReason, ProviderError};
use ctxhost_models::ContextWindow;

/// A request that could not be shaped once more.
struct ReshapeError {
    error: TurnError,
    journey: ProxyRequest,
    session: String,
}

impl Proxy {
    /// The upstream refused a request.
    pub(super) async fn handle_refusal(
        self: &Arc<Self>,
        journey: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        match failure.reason {
            FailureReason::ContextOverflow => self.retry_smaller(journey, failure).await,
            FailureReason::MalformedHistory => self.retry_without_thinking(journey, failure).await,
            _ => None,
        }
    }

    /// The upstream found a request too large.
    async fn retry_smaller(
        self: &Arc<Self>,
        mut journey: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        let mut guard = self.lock_conversation(&journey.conversation).await?;
        let overflow = guard.overflow(&mut journey.target, journey.sent_tokens, failure)?;
        let limit_tokens = failure.limit_tokens.filter(|it| *it > 0);
        if let Some(limit_tokens) = limit_tokens.filter(|_| !failure.is_ceiling) {
            let tokens = limit_tokens.min(journey.window.tokens);
            journey.window = ContextWindow { tokens, is_certain: true, ..journey.window };
        }
        journey.refusals += 1;
        if journey.refusals > self.settings.too_large_tries {
            return give_up(journey, guard.session_id().to_owned(), failure);
        }
        journey.output_cap_tokens = overflow.max_output_tokens.or(journey.output_cap_tokens);
        let (target, window_tokens) = (&mut journey.target, journey.window.tokens);
        target.reserve_tokens =
            target.reserve_tokens.map(|tokens| self.reserve_tokens(tokens, window_tokens));
        match self.reshape(journey, Some(guard)).await? {
            Ok(taken) => Some(taken),
            Err(ReshapeError { error, journey, session }) if self.is_fatal(&error) => {
                Some(ProxyAction::Respond(self.engine_failed(
                    &error,
                    &journey.client_request.endpoint,
                    &session,
                )))
            }
            Err(ReshapeError { error, journey, session }) => {
                tracing::warn!(%error, session, "a request stays too large");
                give_up(journey, session, failure)
            }
        }
    }

    /// The upstream does not accept a history that is not as its client wrote it: it is asked once more
    /// without any thinking. What a client wrote is its own to mend.
    async fn retry_without_thinking(
        self: &Arc<Self>,
        mut journey: ProxyRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        let binds = journey.client_request.endpoint.inbound().has_bound_thinking();
        if !binds || journey.without_thinking || journey.sent_body == journey.client_request.body {
            return None;
        }
        tracing::info!(%failure, "a history is asked about once more, without thinking");
        journey.without_thinking = true;
        let before = journey.sent_body.clone();
        let guard = self.lock_conversation(&journey.conversation).await;
        match self.reshape(journey, guard).await? {
            // There was no thinking in it: its like would be refused alike.
            Ok(ProxyAction::Forward(forward)) if forward.has_body(&before) => None,
            Ok(taken) => Some(taken),
            Err(ReshapeError { error, session, .. }) => {
                tracing::warn!(%error, session, "a history that is not accepted cannot be mended");
                None
            }
        }
    }

    /// The same request, shaped anew for its target; in a conversation of its own where that which it is of
    /// has gone on meanwhile. `None` where it cannot be heard any more.
    async fn reshape(
        self: &Arc<Self>,
        journey: ProxyRequest,
        guard: Option<SessionGuard>,
    ) -> Option<Result<ProxyAction, ReshapeError>> {
        let incoming = journey.client_request.clone();
        let json = std::str::from_utf8(&incoming.body).ok()?;
        let speech = incoming.endpoint.inbound();
        let body = speech.parse_body(json).ok()?;
        let came = ParsedRequest { inbound: speech, bytes: &incoming.body, json, body: &body };
        let is_as_it_was = journey.conversation.state().known.len() == body.items.len();
        let mut heard = match guard.filter(|_| is_as_it_was) {
            Some(guard) => IngestedRequest {
                conversation: journey.conversation.clone(),
                session: guard.session_id().to_owned(),
                guard,
                ended_turn: None,
                client_compacts: journey.client_compacts,
                is_repeat: true,
            },
            None => {
                let mut asked = RequestItems::new(self.seed, &body.items);
                let key = journey.conversation.key();
                let words = RequestMeta { inbound: speech, headers: &incoming.headers, key };
                self.ingest(&words, &mut asked).await.ok()?
            }
        };
        let compaction = self.compaction_policy(heard.guard.context(), journey.is_fit_only);
        let target = Target { compaction, ..journey.target };
        let journey = ProxyRequest { conversation: heard.conversation.clone(), target, ..journey };
        if journey.without_thinking {
            let units = heard.conversation.state().known.groups().len();
            self.refuse_thinking(&heard.session, units);
        }
        Some(match self.shape_and_lower(&mut heard, came, &journey).await {
            Ok(sent) => {
                if sent.report.compaction == "applied" {
                    self.persist(&mut heard).await;
                }
                let target = journey.target.clone();
                self.finish_request(&journey.client_request, heard, target);
                Ok(forward(sent, journey))
            }
            Err(error) => {
                self.warn_small_window(&error, &journey.target.model);
                Err(ReshapeError { error, journey, session: heard.session.clone() })
            }
        })
    }
}

/// The end of a request that stays too large: in words that its client knows where the upstream has shown that
/// it is, else in the upstream's own.
fn give_up(journey: ProxyRequest, session: String, failure: &ProviderError) -> Option<ProxyAction> {
    if !failure.has_overflow_evidence() {
        return None;
    }
    let count = OverflowSize::estimate(&journey, failure);
    Some(overflow_refusal(journey, session, count))
}

/// How large a request is that is refused.
pub(super) struct OverflowSize {
    /// What it has of the conversation, as entries count.
    pub(super) conversation_tokens: u64,
    /// All of it, in provider tokens.
    pub(super) tokens: u64,
}

impl OverflowSize {
    /// As its provider counted it, else as it is estimated.
    fn estimate(journey: &ProxyRequest, failure: &ProviderError) -> OverflowSize {
        let said_tokens = journey.sent_tokens;
        let estimated = said_tokens.saturating_add(journey.target.overhead_tokens);
        OverflowSize {
            conversation_tokens: said_tokens,
            tokens: failure.observed_tokens.unwrap_or(estimated),
        }
    }
}

/// The refusal of a request that cannot be made to fit.
pub(super) fn overflow_refusal(
    journey: ProxyRequest,
    session: String,
    count: OverflowSize,
) -> ProxyAction {
    let OverflowSize { conversation_tokens: said_tokens, tokens } = count;
    let truth = ShapingReport {
        engine: "none".into(),
        tokens: Some(said_tokens),
        before_tokens: Some(journey.conversation.state().known.client_tokens()),
        compaction: "failed",
        session,
        max_tokens: None,
    };
    let window_tokens = journey.window.tokens;
    let it = RequestOverflow { tokens, window_tokens, as_event: journey.as_event };
    ProxyAction::Respond(client_errors::overflow(&journey.client_request.endpoint, it, truth))
}

#[cfg(test)]
mod tests;
