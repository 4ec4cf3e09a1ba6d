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

use super::beginning::{self, Beginning, DOCUMENT_MAX_BYTES};
use super::complaint::complaint;
use super::door::{dialect_of, door, is_ours, owner_of};
use super::encoding::Packed;
use super::exchange::{Answer, Door, Forward, Incoming, Taken, Ticket, Truth};
use super::headers::{forget_connection, forget_ours, prepare, unsealed, unsealed_with_ours};
use super::house::House;
use super::limits::{self, Unread};
use super::tap::{Counting, Passing};
use super::upstream::{Envelope, Trouble, Upstream};
use super::{models, route};
use ctxhost_dialects::message::Usage;
use ctxhost_dialects::{DialectName, ProviderError, Reason};

/// Answers a request, whatever it is.
pub(super) async fn answer(house: Arc<House>, request: Request<Body>) -> Response<Body> {
    let dialect = dialect_of(request.uri(), request.headers());
    if asks_for_websocket(request.headers()) {
        return no_upgrade(dialect);
    }
    if is_ours(request.uri().path()) {
        let message = "the gateway has nothing at that path; see docs/gateway for those it has";
        return complaint(dialect, StatusCode::NOT_FOUND, message);
    }
    let Ok(place) = house.places.clone().try_acquire_owned() else {
        return too_busy(dialect);
    };
    match door(request.method(), request.uri().path()) {
        Some(door) if !house.settings.pass_through => through(&house, door, request, place).await,
        _ => past(&house, dialect, request, place).await,
    }
}

pub(super) fn too_busy(dialect: DialectName) -> Response<Body> {
    let message = "the gateway has too much to do; come again in a second";
    complaint(dialect, StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Other upgrades are offers, and an answer without them declines.
fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    offers.into_iter().any(|offer| offer.to_ascii_lowercase().contains("websocket"))
}

/// WebSockets are not spoken: clients that hear so fall back to streams.
fn no_upgrade(dialect: DialectName) -> Response<Body> {
    let message = "this gateway speaks HTTP with server-sent events alone";
    let mut response = complaint(dialect, StatusCode::UPGRADE_REQUIRED, message);
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    response
}

/// A request that no engine sees.
async fn past(
    house: &Arc<House>,
    dialect: DialectName,
    request: Request<Body>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let is_known = owner_of(request.uri(), request.headers()).is_some();
    let (mut envelope, body) = unsealed(house, request);
    let Some(upstream) = house.upstreams.choose(dialect, None) else { return nobody(dialect) };
    if !is_known && !house.upstreams.are_one() {
        // It may be another company's.
        envelope.forget_keys();
    }
    if models::is_list(&envelope) {
        return models::answer(house, dialect, &upstream, &envelope, place).await;
    }
    match upstream.send(&envelope, body).await {
        Ok(response) => {
            let (parts, rest) = response.into_parts();
            let passing = Passing::new(Vec::new(), Some(rest), upstream.idle, Some(place));
            response_of(parts.status, parts.headers, passing)
        }
        Err(trouble) => unreachable(dialect, &upstream, &trouble),
    }
}

/// A request that an engine sees.
async fn through(
    house: &Arc<House>,
    door: Door,
    request: Request<Body>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let dialect = door.dialect();
    let (mut envelope, body) = unsealed_with_ours(house, request);
    let max = house.max_body_bytes();
    let body = match limits::whole(body, max, house.patience(), &house.bodies).await {
        Ok(body) => body,
        Err(unread) => return not_read(house, dialect, unread),
    };
    let packed = match Packed::of(&envelope.headers, &body, max, &house.bodies).await {
        Ok(packed) => packed,
        Err(unread) => return not_read(house, dialect, unread),
    };
    let body = packed.as_ref().map_or(body, |packed| packed.plain().clone());
    let Some(upstream) = route::upstream(&house.upstreams, &door, &body) else {
        return nobody(dialect);
    };
    let (provider, headers) = (upstream.name.clone(), envelope.headers.clone());
    let incoming = Incoming { door, provider, headers, body };
    prepare(&mut envelope.headers);
    let mut taken = house.exchange.take(&incoming).await;
    let mut way =
        Way { house, door: incoming.door, upstream, envelope, packed, place: Some(place) };
    // The exchange counts: `gateway.too_large_tries` smaller forms, and one without thinking.
    loop {
        match taken {
            Taken::Answer(answer) => return answered_here(answer, &way.door),
            Taken::Forward(forward) => match way.ask(forward).await {
                Asked::Answered(response) => return response,
                Asked::Again(next) => taken = next,
            },
        }
    }
}

/// A request that has been taken, on its way to its upstream.
struct Way<'a> {
    house: &'a Arc<House>,
    door: Door,
    upstream: Arc<Upstream>,
    envelope: Envelope,
    /// The body as it came, where that was compressed.
    packed: Option<Packed>,
    place: Option<OwnedSemaphorePermit>,
}

/// What came of asking.
enum Asked {
    Answered(Response<Body>),
    /// It was refused, and there is another form of it.
    Again(Taken),
}

impl Way<'_> {
    async fn ask(&mut self, forward: Forward) -> Asked {
        let Forward { body, truth, mut ticket } = forward;
        let dialect = self.door.dialect();
        let body = self.packed_again(body);
        let response = match self.upstream.send(&self.envelope, Body::from(body)).await {
            Ok(response) => response,
            Err(trouble) => {
                return Asked::Answered(told(
                    unreachable(dialect, &self.upstream, &trouble),
                    &truth,
                    &self.door,
                ));
            }
        };
        let (parts, mut rest) = response.into_parts();
        let began = self.begin(parts.status, &parts.headers, &mut rest).await;
        let Beginning { head, refusal, is_whole } = match began {
            Ok(beginning) => beginning,
            Err(problem) => {
                let response = broken(dialect, &self.upstream, &problem);
                return Asked::Answered(told(response, &truth, &self.door));
            }
        };
        if refusal.as_ref().is_some_and(|refusal| self.cannot_count(refusal)) {
            let held = std::mem::take(&mut ticket);
            if let Some(answer) = self.house.exchange.estimated(held) {
                return Asked::Again(Taken::Answer(answer));
            }
        }
        let failure = refusal.as_ref().and_then(|refusal| self.failure(refusal));
        let mut ticket = Some(ticket);
        if let (Some(failure), Some(held)) = (&failure, ticket.take_if(|_| failure.is_some()))
            && let Some(next) = self.house.exchange.refused(held, failure).await
        {
            return Asked::Again(next);
        }
        let passing =
            Passing::new(head, (!is_whole).then_some(rest), self.upstream.idle, self.place.take());
        let passing = match ticket.filter(|_| refusal.is_none() && parts.status.is_success()) {
            Some(ticket) => self.counted(passing, ticket, &parts.headers),
            None => passing,
        };
        let response = response_of(parts.status, parts.headers, passing);
        Asked::Answered(told(response, &truth, &self.door))
    }

    /// A body as its client compressed it, where it is what the client sent. Any other goes on as it is.
    fn packed_again(&mut self, body: Bytes) -> Bytes {
        let Some(packed) = self.packed.take() else { return body };
        if let Some(came) = packed.came_as(&body) {
            self.packed = Some(packed);
            return came;
        }
        self.envelope.headers.remove(CONTENT_ENCODING);
        body
    }

    /// As much of the answer as tells whether it is one.
    async fn begin(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        rest: &mut hyper::body::Incoming,
    ) -> Result<Beginning, String> {
        let idle = self.upstream.idle;
        let hold = limits::time(self.house.settings.hold_ms);
        if status.is_client_error() || status.is_server_error() {
            return beginning::of_failure(rest, status.as_u16(), idle).await;
        }
        if !self.door.is_answered_by_a_model() {
            return Ok(Beginning { head: Vec::new(), refusal: None, is_whole: false });
        }
        let is_short = || rest.size_hint().upper().is_some_and(|it| it <= DOCUMENT_MAX_BYTES);
        match is_stream(headers) {
            true => beginning::of_stream(rest, hold, idle).await,
            false if is_short() => beginning::of_document(rest, status.as_u16(), idle).await,
            false => Ok(Beginning { head: Vec::new(), refusal: None, is_whole: false }),
        }
    }

    /// Whether the upstream has no door for counting. That it has no such model is for the client to hear.
    fn cannot_count(&self, refusal: &ctxhost_dialects::failure::Refusal) -> bool {
        let is_of_model = || refusal.message.to_ascii_lowercase().contains("model");
        self.door.only_counts()
            && match refusal.status {
                Some(405 | 501) => true,
                Some(404) => !is_of_model(),
                _ => false,
            }
    }

    /// The refusal as an error, where another form of the request may be taken.
    fn failure(&self, refusal: &ctxhost_dialects::failure::Refusal) -> Option<ProviderError> {
        if !self.door.is_answered_by_a_model() {
            return None;
        }
        let classified = self.upstream.classifier.classify_of(&self.upstream.name, refusal);
        matches!(classified.reason, Reason::ContextOverflow | Reason::MalformedHistory)
            .then(|| classified.into_error(&self.upstream.name, "", refusal.clone(), None))
    }

    fn counted(&self, passing: Passing, mut ticket: Ticket, headers: &HeaderMap) -> Passing {
        if !self.door.is_answered_by_a_model() {
            return passing;
        }
        // An answer may take minutes, and nobody asks for the request again.
        ticket.forget_bodies();
        let room = self.house.bodies.room();
        let counting = Counting::of(self.door.dialect(), is_stream(headers), room);
        let (house, door) = (self.house.clone(), self.door.clone());
        let at_end = move |usage: Option<Usage>| {
            if let Some(usage) = &usage {
                house.watch.used(&door, usage);
            }
            house.exchange.answered(ticket, usage);
        };
        passing.counting(counting, Box::new(at_end))
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// The upstream's answer, as it came.
pub(super) fn response_of(
    status: StatusCode,
    mut headers: HeaderMap,
    body: impl Into<Answering>,
) -> Response<Body> {
    forget_connection(&mut headers);
    forget_ours(&mut headers);
    let Answering(body) = body.into();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The body of an answer: on its way, or whole.
pub(super) struct Answering(Body);

impl From<Passing> for Answering {
    fn from(passing: Passing) -> Self {
        Answering(Body::new(passing))
    }
}

impl From<Bytes> for Answering {
    fn from(bytes: Bytes) -> Self {
        Answering(Body::from(bytes))
    }
}

/// An answer with the truth about it.
pub(super) fn told(mut response: Response<Body>, truth: &Truth, door: &Door) -> Response<Body> {
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

fn answered_here(answer: Answer, door: &Door) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    let kind = HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    told(response, &answer.truth, door)
}

fn nobody(dialect: DialectName) -> Response<Body> {
    let message = "the gateway has nobody to ask in this dialect; name one in gateway.upstreams";
    complaint(dialect, StatusCode::BAD_GATEWAY, message)
}

pub(super) fn not_read(house: &House, dialect: DialectName, unread: Unread) -> Response<Body> {
    match unread {
        Unread::TooLarge => {
            let max = house.max_body_bytes();
            let setting = match max < house.settings.max_body_bytes {
                true => "gateway.max_bodies_bytes",
                false => "gateway.max_body_bytes",
            };
            let message = format!("the body is larger than {max} bytes ({setting})");
            complaint(dialect, StatusCode::PAYLOAD_TOO_LARGE, &message)
        }
        Unread::NoRoom => {
            house.watch.edge().bodies_refused.inc();
            let (held, limit) = (house.bodies.held_bytes(), house.bodies.limit_bytes());
            let message = format!(
                "the bodies of other requests take {held} of {limit} bytes (gateway.max_bodies_bytes), which leaves too \
                 little for this one; come again in a second"
            );
            complaint(dialect, StatusCode::SERVICE_UNAVAILABLE, &message)
        }
        Unread::TooSlow => {
            let message = "the body did not come to its end (gateway.client_timeout_ms)";
            complaint(dialect, StatusCode::REQUEST_TIMEOUT, message)
        }
        Unread::Broken => {
            complaint(dialect, StatusCode::BAD_REQUEST, "the body did not come to its end")
        }
    }
}

/// An upstream that gave no answer at all.
pub(super) fn unreachable(
    dialect: DialectName,
    upstream: &Upstream,
    trouble: &Trouble,
) -> Response<Body> {
    let host = upstream.host();
    tracing::warn!(upstream = host, ?trouble, "an upstream gave no answer");
    match trouble {
        Trouble::TooSlow(ms) => {
            let message = format!("{host} began no answer within {ms} ms");
            complaint(dialect, StatusCode::GATEWAY_TIMEOUT, &message)
        }
        Trouble::Unreachable(problem) => {
            let message = format!("{host} cannot be asked: {problem}");
            complaint(dialect, StatusCode::BAD_GATEWAY, &message)
        }
        Trouble::NoKey(problem) => {
            let message = format!("there is no key for {host}: {problem}");
            complaint(dialect, StatusCode::BAD_GATEWAY, &message)
        }
    }
}

/// An upstream that broke off before it said anything.
fn broken(dialect: DialectName, upstream: &Upstream, problem: &str) -> Response<Body> {
    let message = format!("{} broke off before it answered: {problem}", upstream.host());
    complaint(dialect, StatusCode::BAD_GATEWAY, &message)
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
