//! One request through the gateway: read, taken, asked, answered.
//!
//! ```text
//!  client ─► door? ─ no ─► passed on as it comes, both ways
//!              │ yes
//!              ▼
//!            whole body ─► exchange.take ─► upstream ─► beginning ─┬─ says something ─► passing ─► client
//!                               ▲                                  │
//!                               └── exchange.refused ◄──── refusal─┘
//! ```

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::compression::CompressedBody;
use super::error_response::error_response;
use super::headers::{
    prepare_for_upstream, remove_hop_by_hop, remove_own_headers, strip_gateway_headers, strip_token,
};
use super::limits::{self, BodyReadError};
use super::peek::{self, DOCUMENT_MAX_BYTES, PeekedResponse};
use super::proxy::{
    ClientRequest, Endpoint, InFlightRequest, LocalResponse, ProxyAction, ShapingReport,
    UpstreamRequest,
};
use super::response_stream::{StreamingBody, UsageReader};
use super::routes::{dialect_of, endpoint_for, is_gateway_path, known_dialect_of};
use super::state::GatewayState;
use super::upstream::{RequestHead, Upstream, UpstreamError};
use super::{model_list, route};
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{DialectName, FailureReason, ProviderError};

/// Answers a request, whatever it is.
pub(super) async fn handle(house: Arc<GatewayState>, request: Request<Body>) -> Response<Body> {
    let dialect = dialect_of(request.uri(), request.headers());
    if is_websocket_upgrade(request.headers()) {
        return refuse_upgrade(dialect);
    }
    if is_gateway_path(request.uri().path()) {
        let message = "the gateway has nothing at that path; see docs/gateway for those it has";
        return error_response(dialect, StatusCode::NOT_FOUND, message);
    }
    let Ok(place) = house.request_permits.clone().try_acquire_owned() else {
        return overloaded(dialect);
    };
    match endpoint_for(request.method(), request.uri().path()) {
        Some(door) if !house.settings.pass_through => {
            proxy_shaped(&house, door, request, place).await
        }
        _ => proxy_passthrough(&house, dialect, request, place).await,
    }
}

pub(super) fn overloaded(dialect: DialectName) -> Response<Body> {
    let message = "the gateway has too much to do; come again in a second";
    error_response(dialect, StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Other upgrades are offers, and an answer without them declines.
fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offers.into_iter().any(|offer| offer.to_ascii_lowercase().contains("websocket"))
}

/// WebSockets are not spoken: clients that hear so fall back to streams.
fn refuse_upgrade(dialect: DialectName) -> Response<Body> {
    let message = "this gateway speaks HTTP with server-sent events alone";
    let mut response = error_response(dialect, StatusCode::UPGRADE_REQUIRED, message);
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    response
}

/// A request that no engine sees.
async fn proxy_passthrough(
    house: &Arc<GatewayState>,
    dialect: DialectName,
    request: Request<Body>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let is_known = known_dialect_of(request.uri(), request.headers()).is_some();
    let (mut envelope, body) = strip_gateway_headers(house, request);
    let Some(upstream) = house.upstreams.select(dialect, None) else { return no_upstream(dialect) };
    if !is_known && !house.upstreams.is_single_host() {
        // It may be another company's.
        envelope.remove_credentials();
    }
    if model_list::is_model_list(&envelope) {
        return model_list::list_models(house, dialect, &upstream, &envelope, place).await;
    }
    match upstream.send(&envelope, body).await {
        Ok(response) => {
            let (parts, rest) = response.into_parts();
            let passing =
                StreamingBody::new(Vec::new(), Some(rest), upstream.idle_timeout, Some(place));
            upstream_response(parts.status, parts.headers, passing)
        }
        Err(trouble) => upstream_failed(dialect, &upstream, &trouble),
    }
}

/// A request that an engine sees.
async fn proxy_shaped(
    house: &Arc<GatewayState>,
    door: Endpoint,
    request: Request<Body>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let dialect = door.dialect();
    let (mut envelope, body) = strip_token(house, request);
    let max = house.max_body_bytes();
    let body = match limits::read_body(body, max, house.read_timeouts(), &house.body_budget).await {
        Ok(body) => body,
        Err(unread) => return body_read_failed(house, dialect, unread),
    };
    let packed =
        match CompressedBody::decode(&envelope.headers, &body, max, &house.body_budget).await {
            Ok(packed) => packed,
            Err(unread) => return body_read_failed(house, dialect, unread),
        };
    let body = packed.as_ref().map_or(body, |packed| packed.decoded().clone());
    let Some(upstream) = route::select_upstream(&house.upstreams, &door, &body) else {
        return no_upstream(dialect);
    };
    let (provider, headers) = (upstream.name.clone(), envelope.headers.clone());
    let incoming = ClientRequest { endpoint: door, provider, headers, body };
    prepare_for_upstream(&mut envelope.headers);
    let mut taken = house.proxy.handle(&incoming).await;
    let mut way = ProxyCall {
        house,
        door: incoming.endpoint,
        upstream,
        envelope,
        packed,
        place: Some(place),
    };
    // The exchange counts: `gateway.too_large_tries` smaller forms, and one without thinking.
    loop {
        match taken {
            ProxyAction::Respond(answer) => return local_response(answer, &way.door),
            ProxyAction::Forward(forward) => match way.attempt(forward).await {
                AttemptOutcome::Done(response) => return response,
                AttemptOutcome::Retry(next) => taken = next,
            },
        }
    }
}

/// A request that has been taken, on its way to its upstream.
struct ProxyCall<'a> {
    house: &'a Arc<GatewayState>,
    door: Endpoint,
    upstream: Arc<Upstream>,
    envelope: RequestHead,
    /// The body as it came, where that was compressed.
    packed: Option<CompressedBody>,
    place: Option<OwnedSemaphorePermit>,
}

/// What came of asking.
enum AttemptOutcome {
    Done(Response<Body>),
    /// It was refused, and there is another form of it.
    Retry(ProxyAction),
}

impl ProxyCall<'_> {
    async fn attempt(&mut self, forward: UpstreamRequest) -> AttemptOutcome {
        let UpstreamRequest { body, report: truth, in_flight: mut ticket } = forward;
        let dialect = self.door.dialect();
        let body = self.recompress(body);
        let response = match self.upstream.send(&self.envelope, Body::from(body)).await {
            Ok(response) => response,
            Err(trouble) => {
                return AttemptOutcome::Done(with_context_headers(
                    upstream_failed(dialect, &self.upstream, &trouble),
                    &truth,
                    &self.door,
                ));
            }
        };
        let (parts, mut rest) = response.into_parts();
        let began = self.peek(parts.status, &parts.headers, &mut rest).await;
        let PeekedResponse { frames: head, refusal, is_complete: is_whole } = match began {
            Ok(beginning) => beginning,
            Err(problem) => {
                let response = upstream_broke_off(dialect, &self.upstream, &problem);
                return AttemptOutcome::Done(with_context_headers(response, &truth, &self.door));
            }
        };
        if refusal.as_ref().is_some_and(|refusal| self.cannot_count(refusal)) {
            let held = std::mem::take(&mut ticket);
            if let Some(answer) = self.house.proxy.estimate_count(held) {
                return AttemptOutcome::Retry(ProxyAction::Respond(answer));
            }
        }
        let failure = refusal.as_ref().and_then(|refusal| self.retryable_error(refusal));
        let mut ticket = Some(ticket);
        if let (Some(failure), Some(held)) = (&failure, ticket.take_if(|_| failure.is_some()))
            && let Some(next) = self.house.proxy.handle_refusal(held, failure).await
        {
            return AttemptOutcome::Retry(next);
        }
        let passing = StreamingBody::new(
            head,
            (!is_whole).then_some(rest),
            self.upstream.idle_timeout,
            self.place.take(),
        );
        let passing = match ticket.filter(|_| refusal.is_none() && parts.status.is_success()) {
            Some(ticket) => self.with_usage(passing, ticket, &parts.headers),
            None => passing,
        };
        let response = upstream_response(parts.status, parts.headers, passing);
        AttemptOutcome::Done(with_context_headers(response, &truth, &self.door))
    }

    /// A body as its client compressed it, where it is what the client sent. Any other goes on as it is.
    fn recompress(&mut self, body: Bytes) -> Bytes {
        let Some(packed) = self.packed.take() else { return body };
        if let Some(came) = packed.compressed_form_of(&body) {
            self.packed = Some(packed);
            return came;
        }
        self.envelope.headers.remove(CONTENT_ENCODING);
        body
    }

    /// As much of the answer as tells whether it is one.
    async fn peek(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        rest: &mut hyper::body::Incoming,
    ) -> Result<PeekedResponse, String> {
        let idle = self.upstream.idle_timeout;
        let hold = limits::bounded_duration(self.house.settings.hold_ms);
        if status.is_client_error() || status.is_server_error() {
            return peek::peek_error(rest, status.as_u16(), idle).await;
        }
        if !self.door.is_generation() {
            return Ok(PeekedResponse { frames: Vec::new(), refusal: None, is_complete: false });
        }
        let is_short = || rest.size_hint().upper().is_some_and(|it| it <= DOCUMENT_MAX_BYTES);
        match is_stream(headers) {
            true => peek::peek_stream(rest, hold, idle).await,
            false if is_short() => peek::peek_document(rest, status.as_u16(), idle).await,
            false => Ok(PeekedResponse { frames: Vec::new(), refusal: None, is_complete: false }),
        }
    }

    /// Whether the upstream has no door for counting. That it has no such model is for the client to hear.
    fn cannot_count(&self, refusal: &ctxhost_dialects::failure::ProviderRefusal) -> bool {
        let is_of_model = || refusal.message.to_ascii_lowercase().contains("model");
        self.door.is_token_count()
            && match refusal.status {
                Some(405 | 501) => true,
                Some(404) => !is_of_model(),
                _ => false,
            }
    }

    /// The refusal as an error, where another form of the request may be taken.
    fn retryable_error(
        &self,
        refusal: &ctxhost_dialects::failure::ProviderRefusal,
    ) -> Option<ProviderError> {
        if !self.door.is_generation() {
            return None;
        }
        let classified = self.upstream.classifier.classify_for(&self.upstream.name, refusal);
        matches!(
            classified.reason,
            FailureReason::ContextOverflow | FailureReason::MalformedHistory
        )
        .then(|| classified.into_error(&self.upstream.name, "", refusal.clone(), None))
    }

    fn with_usage(
        &self,
        passing: StreamingBody,
        mut ticket: InFlightRequest,
        headers: &HeaderMap,
    ) -> StreamingBody {
        if !self.door.is_generation() {
            return passing;
        }
        // An answer may take minutes, and nobody asks for the request again.
        ticket.drop_bodies();
        let room = self.house.body_budget.reservation();
        let counting = UsageReader::new(self.door.dialect(), is_stream(headers), room);
        let (house, door) = (self.house.clone(), self.door.clone());
        let at_end = move |usage: Option<TokenUsage>| {
            if let Some(usage) = &usage {
                house.stats.record_usage(&door, usage);
            }
            house.proxy.record_answer(ticket, usage);
        };
        passing.with_usage(counting, Box::new(at_end))
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// The upstream's answer, as it came.
pub(super) fn upstream_response(
    status: StatusCode,
    mut headers: HeaderMap,
    body: impl Into<ResponseBody>,
) -> Response<Body> {
    remove_hop_by_hop(&mut headers);
    remove_own_headers(&mut headers);
    let ResponseBody(body) = body.into();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The body of an answer: on its way, or whole.
pub(super) struct ResponseBody(Body);

impl From<StreamingBody> for ResponseBody {
    fn from(passing: StreamingBody) -> Self {
        ResponseBody(Body::new(passing))
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        ResponseBody(Body::from(bytes))
    }
}

/// An answer with the truth about it.
pub(super) fn with_context_headers(
    mut response: Response<Body>,
    truth: &ShapingReport,
    door: &Endpoint,
) -> Response<Body> {
    let tokens = truth.tokens.map(|tokens| tokens.to_string());
    let max_tokens = truth.max_tokens.map(|tokens| tokens.to_string());
    let told = [
        ("x-ctxhost-max-tokens", max_tokens.as_deref()),
        ("x-ctxhost-engine", Some(truth.engine.as_str())),
        ("x-ctxhost-tokens", tokens.as_deref()),
        ("x-ctxhost-compaction", Some(truth.compaction)),
        ("x-ctxhost-session", Some(truth.session.as_str())),
    ];
    for (name, value) in told {
        let value = value.filter(|value| !value.is_empty());
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response.extensions_mut().insert(truth.clone());
    response.extensions_mut().insert(door.clone());
    response
}

fn local_response(answer: LocalResponse, door: &Endpoint) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    let kind = HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    with_context_headers(response, &answer.report, door)
}

fn no_upstream(dialect: DialectName) -> Response<Body> {
    let message = "the gateway has nobody to ask in this dialect; name one in gateway.upstreams";
    error_response(dialect, StatusCode::BAD_GATEWAY, message)
}

pub(super) fn body_read_failed(
    house: &GatewayState,
    dialect: DialectName,
    unread: BodyReadError,
) -> Response<Body> {
    match unread {
        BodyReadError::TooLarge => {
            let max = house.max_body_bytes();
            let setting = match max < house.settings.max_body_bytes {
                true => "gateway.max_bodies_bytes",
                false => "gateway.max_body_bytes",
            };
            let message = format!("the body is larger than {max} bytes ({setting})");
            error_response(dialect, StatusCode::PAYLOAD_TOO_LARGE, &message)
        }
        BodyReadError::NoBudget => {
            house.stats.edge().bodies_refused.inc();
            let (held, limit) = (house.body_budget.held_bytes(), house.body_budget.limit_bytes());
            let message = format!(
                "the bodies of other requests take {held} of {limit} bytes (gateway.max_bodies_bytes), which leaves too \
                 little for this one; come again in a second"
            );
            error_response(dialect, StatusCode::SERVICE_UNAVAILABLE, &message)
        }
        BodyReadError::TimedOut => {
            let message = "the body did not come to its end (gateway.client_timeout_ms)";
            error_response(dialect, StatusCode::REQUEST_TIMEOUT, message)
        }
        BodyReadError::Disconnected => {
            error_response(dialect, StatusCode::BAD_REQUEST, "the body did not come to its end")
        }
    }
}

/// An upstream that gave no answer at all.
pub(super) fn upstream_failed(
    dialect: DialectName,
    upstream: &Upstream,
    trouble: &UpstreamError,
) -> Response<Body> {
    let host = upstream.host();
    tracing::warn!(upstream = host, ?trouble, "an upstream gave no answer");
    match trouble {
        UpstreamError::TimedOut(ms) => {
            let message = format!("{host} began no answer within {ms} ms");
            error_response(dialect, StatusCode::GATEWAY_TIMEOUT, &message)
        }
        UpstreamError::Unreachable(problem) => {
            let message = format!("{host} cannot be asked: {problem}");
            error_response(dialect, StatusCode::BAD_GATEWAY, &message)
        }
        UpstreamError::NoKey(problem) => {
            let message = format!("there is no key for {host}: {problem}");
            error_response(dialect, StatusCode::BAD_GATEWAY, &message)
        }
    }
}

/// An upstream that broke off before it said anything.
fn upstream_broke_off(dialect: DialectName, upstream: &Upstream, problem: &str) -> Response<Body> {
    let message = format!("{} broke off before it answered: {problem}", upstream.host());
    error_response(dialect, StatusCode::BAD_GATEWAY, &message)
}

/// A plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// A piece of JSON as a whole answer.
pub(super) fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
