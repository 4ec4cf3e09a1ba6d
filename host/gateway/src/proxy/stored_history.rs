//! Requests whose history only the provider has.
//!
//! Such a history cannot be shaped here. If it is too large, the provider is asked to truncate it. It stays too large, so
//! its later requests ask for that at once: else each of them would be refused first.

use super::client_errors;
use super::core::{MAX_MEASURED, Proxy, lock};
use super::messages::ClientRequest;
use super::request::{ProxyAction, UpstreamRequest};
use ctxhost_conversations::SeededHash;
use ctxhost_dialects::inbound::StoredOverflow;
use ctxhost_dialects::{FailureReason, ProviderError};

/// A history that a provider stores.
#[derive(Debug)]
pub(super) struct StoredHistory {
    provider: String,
    /// The id by which the request names it; `None` if it names single items.
    id: Option<String>,
}

impl Proxy {
    /// Forwards a request whose history is at the provider.
    pub(super) fn forward_stored(&self, request: &ClientRequest) -> ProxyAction {
        let truncated = self.truncated_form(request);
        ProxyAction::Forward(truncated.unwrap_or_else(|| {
            let mut forward = UpstreamRequest::unchanged(request);
            forward.in_flight.stored_request = Some(Box::new(request.clone()));
            forward
        }))
    }

    /// The request as the provider has to truncate its history; `None` if that history has not been too large so far.
    fn truncated_form(&self, request: &ClientRequest) -> Option<UpstreamRequest> {
        let is_known = |id: &str| {
            lock(&self.truncated_histories).contains(&self.history_key(&request.provider, id))
        };
        if !request.endpoint.is_generation() || lock(&self.truncated_histories).is_empty() {
            return None;
        }
        let json = std::str::from_utf8(&request.body).ok()?;
        match request.endpoint.inbound().stored_overflow(json)? {
            StoredOverflow::Resend { body, history }
                if history.as_deref().is_some_and(is_known) =>
            {
                Some(truncating(request, body, history))
            }
            StoredOverflow::Resend { .. } | StoredOverflow::NotFound(_) => None,
        }
    }

    /// Handles the overflow of a history that only the provider has. `None` forwards the upstream's own error.
    pub(super) fn retry_stored(
        &self,
        request: &ClientRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        if failure.reason != FailureReason::ContextOverflow {
            return None;
        }
        let json = std::str::from_utf8(&request.body).ok()?;
        Some(match request.endpoint.inbound().stored_overflow(json)? {
            StoredOverflow::Resend { body, history } => {
                tracing::warn!(
                    failure = self.log_text(failure),
                    "a history that the provider stores is too large: sent again, and the provider drops its oldest items, now and in later requests"
                );
                ProxyAction::Forward(truncating(request, body, history))
            }
            StoredOverflow::NotFound(error) => {
                tracing::info!(
                    failure = self.log_text(failure),
                    "a thread that the provider stores is too large: the client has to send it whole"
                );
                ProxyAction::Respond(client_errors::not_found(&error))
            }
        })
    }

    /// Records that the provider has truncated a history. With `answer`, the id of its answer, the client continues it.
    pub(super) fn record_truncated(&self, history: StoredHistory, answer: Option<&str>) {
        let StoredHistory { provider, id } = history;
        let mut truncated = lock(&self.truncated_histories);
        // A forgotten history is refused once more, and then is known again.
        if truncated.len() >= MAX_MEASURED {
            truncated.clear();
        }
        let ids = id.as_deref().into_iter().chain(answer);
        truncated.extend(ids.map(|id| self.history_key(&provider, id)));
    }

    fn history_key(&self, provider: &str, id: &str) -> SeededHash {
        SeededHash::new(self.seed, &format!("{provider} {id}"))
    }
}

fn truncating(request: &ClientRequest, body: String, id: Option<String>) -> UpstreamRequest {
    let mut forward = UpstreamRequest::unchanged(request);
    forward.body = body.into();
    let provider = request.provider.to_string();
    forward.in_flight.truncated_history = Some(StoredHistory { provider, id });
    forward
}

#[cfg(test)]
mod tests;
