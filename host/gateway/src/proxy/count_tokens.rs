//! Token counting: the count of what the model would get, not of what the client has.

use std::sync::Arc;

use axum::http::StatusCode;
use ctxhost_conversations::{KnownItems, RequestItems, RequestMatch, SeededHash};
use ctxhost_engine_api::Plan;
use serde_json::{Value, json};

use super::blocking_pool::{is_large, run_blocking};
use super::core::Proxy;
use super::endpoint::Endpoint;
use super::messages::{ClientRequest, LocalResponse, ShapingReport};
use super::new_items::NewItems;
use super::request::{CountTokensRequest, InFlightRequest, ProxyAction, UpstreamRequest};
use super::shaping::{ParsedRequest, render_request_body};
use ctxhost_context::LiveSession;
use ctxhost_dialects::DialectName;
use ctxhost_history::ForkPoint;
use ctxhost_invariants as invariants;
use ctxhost_session::{Session, SessionHeader};

impl Proxy {
    /// Forwards a count request with the body that would be sent. Nothing is stored, and a conversation that was never
    /// compacted is forwarded unchanged.
    pub(super) async fn count_tokens(
        &self,
        request: &ClientRequest,
        parsed: ParsedRequest<'_>,
        key: SeededHash,
        request_items: &mut RequestItems<'_>,
    ) -> ProxyAction {
        let mut forward = UpstreamRequest::unchanged(request);
        if let Some((body, report)) = self.render_unsent(parsed, key, request_items).await {
            (forward.body, forward.report) = (body.into(), report);
        }
        let count_request =
            CountTokensRequest { request: request.clone(), report: forward.report.clone() };
        forward.in_flight.count_request = Some(Box::new(count_request));
        ProxyAction::Forward(forward)
    }

    /// Our own estimate for an upstream that cannot count, in the client's dialect; `None` if the request was not parsed.
    pub fn estimate_count(&self, in_flight: InFlightRequest) -> Option<LocalResponse> {
        let CountTokensRequest { request, report } = *in_flight.count_request?;
        let json = std::str::from_utf8(&request.body).ok()?;
        let inbound = request.endpoint.inbound();
        let body = request.endpoint.parse_body(json).ok()?;
        let parsed = ParsedRequest { inbound, bytes: &request.body, json, body: &body };
        let tokens = report.tokens.or_else(|| self.estimate_tokens(parsed))?;
        let tokens = tokens + self.overhead_tokens(&body);
        Some(LocalResponse {
            status: StatusCode::OK,
            content_type: "application/json",
            body: count_body(&request.endpoint, tokens).to_string().into(),
            report,
        })
    }

    /// Estimated tokens of a request as the client sent it, with system prompt and tools; `None` if it cannot be parsed.
    pub async fn estimate_request(self: &Arc<Self>, request: &ClientRequest) -> Option<u64> {
        let (proxy, client_request) = (self.clone(), request.clone());
        let estimating = async move { proxy.estimate_unshaped(&client_request) };
        if is_large(request) { run_blocking(estimating).await } else { estimating.await }
    }

    fn estimate_unshaped(&self, request: &ClientRequest) -> Option<u64> {
        let json = std::str::from_utf8(&request.body).ok()?;
        let inbound = request.endpoint.inbound();
        let body = request.endpoint.parse_body(json).ok()?;
        let parsed = ParsedRequest { inbound, bytes: &request.body, json, body: &body };
        Some(self.estimate_tokens(parsed)? + self.overhead_tokens(&body))
    }

    fn estimate_tokens(&self, parsed: ParsedRequest<'_>) -> Option<u64> {
        let mut request_items = RequestItems::new(self.seed, &parsed.body.items);
        let session = Session::in_memory(SessionHeader::new(None, "/", self.runtime.now_ms()));
        let (session, _) =
            append_items(session, KnownItems::default(), parsed, &mut request_items)?;
        Some(LiveSession::new(session).view().total_tokens())
    }

    /// The request as it would be sent, rendered from a copy of its conversation.
    async fn render_unsent(
        &self,
        parsed: ParsedRequest<'_>,
        key: SeededHash,
        request_items: &mut RequestItems<'_>,
    ) -> Option<(Vec<u8>, ShapingReport)> {
        // Counting must not create a conversation: `find` has no side effects on sessions.
        let now_ms = self.runtime.now_ms();
        let conversation = self.conversations.find(key, request_items, now_ms).await?;
        let guard = self.lock_conversation(&conversation).await?;
        let context = self.render_context(&conversation, guard.context().session(), parsed.inbound);
        let known_items = {
            let state = conversation.state();
            let is_next =
                matches!(state.match_request(request_items), RequestMatch::Continues { .. });
            let is_whole = (guard.context().session().is_whole() || !state.is_compacted)
                && !context.has_removed_thinking;
            (is_next && !is_whole).then(|| state.known.clone())?
        };
        let fork = guard.fork(&ForkPoint::Leaf, "".as_ref()).ok()?;
        let session = guard.session_id().to_owned();
        drop(guard);
        let known_items = KnownItems::clone(&known_items);
        let (fork, known_items) = append_items(fork, known_items, parsed, request_items)?;
        let view = LiveSession::new(fork).view();
        let plan = Plan::keep_all(view.len());
        // No budget: the upstream counts the conversation, it does not answer it.
        let enforced =
            invariants::enforce(&view, plan, u64::MAX / 4, &self.config.invariants).ok()?;
        let rendered = render_request_body(parsed, &known_items, &enforced, &view, &context);
        let report = ShapingReport {
            engine: self.runtime.engine(),
            tokens: Some(rendered.tokens),
            compaction: "none",
            session,
            ..ShapingReport::default()
        };
        Some((rendered.body, report))
    }
}

fn count_body(endpoint: &Endpoint, tokens: u64) -> Value {
    match endpoint.dialect {
        DialectName::GoogleGenerativeAi => json!({ "totalTokens": tokens }),
        DialectName::OpenAiResponses => {
            json!({ "object": "response.input_tokens", "input_tokens": tokens })
        }
        _ => json!({ "input_tokens": tokens }),
    }
}

/// Appends the new items of a request to a copy of its conversation.
fn append_items(
    mut fork: Session,
    mut known_items: KnownItems,
    parsed: ParsedRequest<'_>,
    request_items: &mut RequestItems<'_>,
) -> Option<(Session, KnownItems)> {
    let NewItems { groups, bodies } =
        NewItems::parse(&known_items, parsed.inbound, request_items).ok()?;
    let mut ids = Vec::new();
    for body in bodies {
        ids.push(fork.append(body).ok()?);
    }
    known_items.extend(request_items, groups, &ids);
    Some((fork, known_items))
}
