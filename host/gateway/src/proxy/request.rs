//! The state of a request between the client and the upstream.

use std::sync::Arc;

use axum::body::Bytes;

use super::messages::{ClientRequest, LocalResponse, ShapingReport};
use super::stored_history::StoredHistory;
use ctxhost_context::Target;
use ctxhost_conversations::{Conversation, PendingRequest};
use ctxhost_models::ContextWindow;

/// What the handler does with a client request.
#[derive(Debug)]
pub enum ProxyAction {
    /// Send this to the upstream.
    Forward(UpstreamRequest),
    /// Return this to the client.
    Respond(LocalResponse),
}

impl ProxyAction {
    /// Forwards a request unchanged; no engine sees it.
    pub(crate) fn pass_through(request: &ClientRequest) -> ProxyAction {
        ProxyAction::Forward(UpstreamRequest::unchanged(request))
    }

    /// Sends the client's own bytes if nothing was changed of `read`, the form of them that was parsed.
    #[must_use]
    pub(super) fn with_client_body(mut self, read: &Bytes, client_body: &Bytes) -> ProxyAction {
        if let ProxyAction::Forward(forward) = &mut self
            && forward.body.as_ptr() == read.as_ptr()
            && forward.body.len() == read.len()
        {
            forward.body = client_body.clone();
        }
        self
    }
}

/// What is sent to the upstream. Path, method and headers are the client's.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The body: the client's own bytes if the engine changed nothing.
    pub body: Bytes,
    /// How the request was shaped.
    pub report: ShapingReport,
    /// What is needed to retry the request or to record its response.
    pub in_flight: InFlightRequest,
}

impl UpstreamRequest {
    pub(super) fn unchanged(request: &ClientRequest) -> UpstreamRequest {
        UpstreamRequest {
            body: request.body.clone(),
            report: ShapingReport::unshaped("none", ""),
            in_flight: InFlightRequest::default(),
        }
    }

    /// Whether its body, before the output limit was lowered, equals this one.
    pub(super) fn has_body(&self, body: &Bytes) -> bool {
        self.in_flight.request.as_ref().is_some_and(|request| request.sent_body == *body)
    }
}

/// A request that waits for its upstream. Dropping it marks the request as unanswered; its messages stay in the session.
#[derive(Debug, Default)]
pub struct InFlightRequest {
    pub(super) request: Option<Box<ProxyRequest>>,
    pub(super) pending: PendingRequest,
    /// Set for a request whose history is at the provider.
    pub(super) stored_request: Option<Box<ClientRequest>>,
    /// Set for a request whose history the provider is asked to truncate.
    pub(super) truncated_history: Option<StoredHistory>,
    /// Set for a request that only counts tokens.
    pub(super) count_request: Option<Box<CountTokensRequest>>,
}

impl InFlightRequest {
    /// Frees the bodies of a request that will not be retried.
    pub fn drop_bodies(&mut self) {
        self.stored_request = None;
        if let Some(request) = &mut self.request {
            (request.client_request.body, request.sent_body) = (Bytes::new(), Bytes::new());
        }
    }
}

/// A request that only counts tokens.
#[derive(Debug)]
pub(super) struct CountTokensRequest {
    pub(super) request: ClientRequest,
    pub(super) report: ShapingReport,
}

/// The state of a shaped request over its retries.
#[derive(Clone, Debug)]
pub(super) struct ProxyRequest {
    pub(super) client_request: ClientRequest,
    pub(super) conversation: Arc<Conversation>,
    pub(super) target: Target,
    /// The body that was sent last, with the client's own output limit.
    pub(super) sent_body: Bytes,
    /// Estimated tokens of the conversation in it.
    pub(super) sent_tokens: u64,
    /// The output limit that the upstream stated in an error, in provider tokens.
    pub(super) output_cap_tokens: Option<u64>,
    /// How often the upstream rejected it as too large.
    pub(super) refusals: u32,
    /// Whether thinking is removed, because the upstream rejected the history with it.
    pub(super) without_thinking: bool,
    pub(super) window: ContextWindow,
    /// Whether an overflow error must be sent as a stream event.
    pub(super) as_event: bool,
    pub(super) client_compacts: bool,
    /// Whether compaction runs only if the prompt does not fit: the client compacts by itself, or the provider has
    /// the request in its prompt cache as it was.
    pub(super) is_fit_only: bool,
    /// Whether a compaction was applied to any form of this request.
    pub(super) is_compacted: bool,
}
