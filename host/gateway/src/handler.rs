//! Handles a request: reads it, has it shaped, forwards it, and returns the response.
//!
//! ```text
//!  client ─► shaped endpoint? ─ no ─► forwarded as a stream, both ways
//!                │ yes
//!                ▼
//!            read body ─► proxy.handle ─► upstream ─► peek ─┬─ content ─► StreamingBody ─► client
//!                              ▲                            │
//!                              └── proxy.handle_refusal ◄───┴─ error
//! ```

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, UPGRADE};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::compression::{CompressedBody, ReceivedBody};
use super::headers::{prepare_for_upstream, strip_gateway_headers, strip_token};
use super::limits;
use super::model_list;
use super::peek::{self, DOCUMENT_MAX_BYTES, PeekedResponse};
use super::proxy::{
    ClientRequest, Endpoint, InFlightRequest, ProxyAction, ShapingReport, UpstreamRequest,
};
use super::response_stream::{ReportReader, StreamingBody};
use super::responses::{
    body_read_failed, error_response, local_response, no_upstream, overloaded, upstream_broke_off,
    upstream_failed, upstream_response, with_context_headers, with_report,
};
use super::routes::{
    dialect_of, endpoint_for, is_gateway_path, is_unshaped_generation, known_dialect_of,
};
use super::state::GatewayState;
use super::upstream::{RequestHead, Upstream};
use ctxhost_dialects::dialect::FrameFormat;
use ctxhost_dialects::failure::ProviderRefusal;
use ctxhost_dialects::usage::AnswerReport;
use ctxhost_dialects::{DialectName, FailureReason, ProviderError};

/// Handles any request.
pub(super) async fn handle(state: Arc<GatewayState>, request: Request<Body>) -> Response<Body> {
    let dialect = dialect_of(request.uri(), request.headers());
    if is_websocket_upgrade(request.headers()) {
        return refuse_upgrade(dialect);
    }
    if is_gateway_path(request.uri().path()) {
        let message = "unknown gateway path; docs/gateway/README.md lists the endpoints";
        return error_response(dialect, StatusCode::NOT_FOUND, message);
    }
    // Rejected at once: a queued request would hold its body until its client times out.
    let Ok(permit) = state.request_permits.clone().try_acquire_owned() else {
        return overloaded(dialect);
    };
    match endpoint_for(&request) {
        Some(endpoint) if !state.settings.pass_through => {
            proxy_shaped(&state, endpoint, request, permit).await
        }
        _ => proxy_passthrough(&state, dialect, request, permit).await,
    }
}

/// Other upgrades (h2c) are optional: a normal response declines them.
fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let mut offers = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offers.any(|offer| offer.to_ascii_lowercase().contains("websocket"))
}

/// Codex tries a WebSocket first and falls back to server-sent events on status 426.
fn refuse_upgrade(dialect: DialectName) -> Response<Body> {
    let message = "WebSockets are not supported; use HTTP with server-sent events";
    let mut response = error_response(dialect, StatusCode::UPGRADE_REQUIRED, message);
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    response
}

/// Forwards a request that no engine sees.
async fn proxy_passthrough(
    state: &Arc<GatewayState>,
    dialect: DialectName,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Response<Body> {
    let is_known = known_dialect_of(request.uri(), request.headers()).is_some();
    let is_generation = !state.settings.pass_through && is_unshaped_generation(&request);
    if is_generation {
        state.proxy.warn_unsupported(request.uri().path());
    }
    let (mut head, body) = strip_gateway_headers(state, request);
    let Some(upstream) = state.upstreams.select(dialect, None) else { return no_upstream(dialect) };
    if !is_known && !state.upstreams.is_single_host() {
        // The credentials may belong to another provider.
        head.remove_credentials();
    }
    if model_list::is_model_list(&head) {
        return model_list::list_models(state, dialect, &upstream, &head, permit).await;
    }
    match upstream.send(&head, body).await {
        Ok(response) => {
            let (parts, rest) = response.into_parts();
            let idle = upstream.idle_timeout;
            let body = StreamingBody::new(Vec::new(), Some(rest), idle, Some(permit));
            let response = upstream_response(parts.status, parts.headers, body);
            if is_generation {
                with_report(response, &ShapingReport::unsupported())
            } else {
                response
            }
        }
        Err(error) => upstream_failed(dialect, &upstream, &error),
    }
}

/// Forwards a request that an engine shapes.
async fn proxy_shaped(
    state: &Arc<GatewayState>,
    endpoint: Endpoint,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Response<Body> {
    let dialect = endpoint.dialect;
    let (mut head, body) = strip_token(state, request);
    let (max, budget) = (state.max_body_bytes(), &state.body_budget);
    let body = match limits::read_body(body, max, state.read_timeouts(), budget).await {
        Ok(body) => body,
        Err(error) => return body_read_failed(state, dialect, error),
    };
    let (compressed, unread) = match ReceivedBody::decode(&head.headers, &body, max, budget).await {
        Ok(ReceivedBody::Plain) => (None, None),
        Ok(ReceivedBody::Compressed(compressed)) => (Some(compressed), None),
        Ok(ReceivedBody::Unread(unread)) => (None, Some(unread)),
        Err(error) => return body_read_failed(state, dialect, error),
    };
    let body = compressed.as_ref().map_or(body, |compressed| compressed.decoded().clone());
    let Some(upstream) = state.upstreams.select_for(&endpoint, &body) else {
        return no_upstream(dialect);
    };
    // The proxy reads session ids and beta features from the client's own headers, so they are copied before
    // `prepare_for_upstream` removes some.
    let (provider, headers) = (upstream.name.clone(), head.headers.clone());
    let request = ClientRequest { endpoint, provider, headers, body };
    prepare_for_upstream(&mut head.headers);
    let mut action = if let Some(error) = unread {
        tracing::warn!(%error, "the request is forwarded unshaped");
        ProxyAction::pass_through(&request)
    } else {
        // Boxed here and below: while the upstream works, a waiting request would hold the room of both for that long.
        Box::pin(state.proxy.handle(&request)).await
    };
    let endpoint = request.endpoint;
    let mut call = ProxyCall { state, endpoint, upstream, head, compressed, permit: Some(permit) };
    // The proxy bounds the retries: `gateway.too_large_tries` smaller forms, and one without thinking.
    loop {
        match action {
            ProxyAction::Respond(local) => return local_response(local, &call.endpoint),
            ProxyAction::Forward(forward) => match call.attempt(forward).await {
                AttemptOutcome::Done(response) => return response,
                AttemptOutcome::Retry(next) => action = next,
            },
        }
    }
}

/// A shaped request on its way to the upstream, over its retries.
struct ProxyCall<'a> {
    state: &'a Arc<GatewayState>,
    endpoint: Endpoint,
    upstream: Arc<Upstream>,
    head: RequestHead,
    /// The client's body, if it was compressed.
    compressed: Option<CompressedBody>,
    permit: Option<OwnedSemaphorePermit>,
}

enum AttemptOutcome {
    Done(Response<Body>),
    Retry(ProxyAction),
}

impl ProxyCall<'_> {
    async fn attempt(&mut self, forward: UpstreamRequest) -> AttemptOutcome {
        let UpstreamRequest { body, report, mut in_flight } = forward;
        let dialect = self.endpoint.dialect;
        let done = |response| {
            AttemptOutcome::Done(with_context_headers(response, &report, &self.endpoint))
        };
        let body = recompress(&mut self.compressed, &mut self.head, body);
        let response = match self.upstream.send(&self.head, Body::from(body)).await {
            Ok(response) => response,
            Err(error) => return done(upstream_failed(dialect, &self.upstream, &error)),
        };
        let (parts, mut rest) = response.into_parts();
        // Nothing was sent to the client yet, so any error up to here can still be replaced.
        let peeked = match self.peek(parts.status, &parts.headers, &mut rest).await {
            Ok(peeked) => peeked,
            Err(cause) => return done(upstream_broke_off(dialect, &self.upstream, &cause)),
        };
        let PeekedResponse { frames, refusal, is_complete } = peeked;
        if refusal.as_ref().is_some_and(|refusal| self.cannot_count(refusal)) {
            // The estimate replaces the upstream's error, so there is nothing left to retry.
            let in_flight = std::mem::take(&mut in_flight);
            if let Some(local) = self.state.proxy.estimate_count(in_flight) {
                return AttemptOutcome::Retry(ProxyAction::Respond(local));
            }
        }
        let failure = refusal.as_ref().and_then(|refusal| self.retryable_error(refusal));
        let mut in_flight = Some(in_flight);
        if let Some(failure) = &failure
            && let Some(in_flight) = in_flight.take()
            && let Some(next) = Box::pin(self.state.proxy.handle_refusal(in_flight, failure)).await
        {
            return AttemptOutcome::Retry(next);
        }
        // The permit moves into the body: a request counts as in flight until its response has ended.
        let (rest, idle) = ((!is_complete).then_some(rest), self.upstream.idle_timeout);
        let body = StreamingBody::new(frames, rest, idle, self.permit.take());
        let body = match in_flight.filter(|_| refusal.is_none() && parts.status.is_success()) {
            Some(in_flight) => self.with_report(body, in_flight, &parts.headers),
            None => body,
        };
        done(upstream_response(parts.status, parts.headers, body))
    }

    /// Reads as much of the response as shows whether it is an error.
    async fn peek(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        rest: &mut hyper::body::Incoming,
    ) -> Result<PeekedResponse, String> {
        let idle = self.upstream.idle_timeout;
        let is_short = || rest.size_hint().upper().is_some_and(|bytes| bytes <= DOCUMENT_MAX_BYTES);
        if status.is_client_error() || status.is_server_error() {
            peek::peek_error(rest, status.as_u16(), idle).await
        } else if !self.endpoint.is_generation() {
            Ok(PeekedResponse::default())
        } else {
            match framing_of(headers) {
                Some(FrameFormat::Sse) => {
                    let hold = limits::bounded_duration(self.state.settings.hold_ms);
                    peek::peek_stream(rest, hold, idle).await
                }
                None if is_short() => peek::peek_document(rest, status.as_u16(), idle).await,
                // Ollama refuses before it streams.
                _ => Ok(PeekedResponse::default()),
            }
        }
    }

    /// Whether the upstream has no endpoint for counting. A 404 about an unknown model is the client's error.
    fn cannot_count(&self, refusal: &ProviderRefusal) -> bool {
        let is_about_model = || refusal.message.to_ascii_lowercase().contains("model");
        self.endpoint.is_token_count()
            && match refusal.status {
                Some(405 | 501) => true,
                Some(404) => !is_about_model(),
                _ => false,
            }
    }

    /// The error, if another form of the request may succeed.
    fn retryable_error(&self, refusal: &ProviderRefusal) -> Option<ProviderError> {
        if !self.endpoint.is_generation() {
            return None;
        }
        let classified = self.upstream.classifier.classify_for(&self.upstream.name, refusal);
        let is_retryable = matches!(
            classified.reason,
            FailureReason::ContextOverflow | FailureReason::MalformedHistory
        );
        is_retryable.then(|| classified.into_error(&self.upstream.name, "", refusal.clone(), None))
    }

    /// Records what the response reports when it ends.
    fn with_report(
        &self,
        body: StreamingBody,
        mut in_flight: InFlightRequest,
        headers: &HeaderMap,
    ) -> StreamingBody {
        if !self.endpoint.is_generation() {
            return body;
        }
        // The response has begun, so there is no retry, and it may take minutes.
        in_flight.drop_bodies();
        let reservation = self.state.body_budget.reservation();
        let reader = ReportReader::new(self.endpoint.dialect, framing_of(headers), reservation);
        let (state, endpoint) = (self.state.clone(), self.endpoint.clone());
        let at_end = move |report: AnswerReport| {
            if let Some(usage) = &report.usage {
                state.stats.record_usage(&endpoint, usage);
            }
            state.proxy.record_answer(in_flight, report);
        };
        body.with_report(reader, Box::new(at_end))
    }
}

/// The client's compressed body if it is sent unchanged. A changed body is sent uncompressed, and so are its retries.
fn recompress(
    compressed: &mut Option<CompressedBody>,
    head: &mut RequestHead,
    body: Bytes,
) -> Bytes {
    let Some(client_body) = compressed else { return body };
    if let Some(received) = client_body.compressed_form_of(&body) {
        return received;
    }
    *compressed = None;
    head.headers.remove(CONTENT_ENCODING);
    body
}

/// The framing of a streamed response; `None` for a document.
fn framing_of(headers: &HeaderMap) -> Option<FrameFormat> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.trim_start().to_ascii_lowercase();
    if kind.starts_with("text/event-stream") {
        return Some(FrameFormat::Sse);
    }
    kind.starts_with("application/x-ndjson").then_some(FrameFormat::JsonLines)
}
