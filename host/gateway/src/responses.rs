//! Builds the gateway's responses: forwarded ones, local ones, and errors in the client's dialect.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::headers::{remove_hop_by_hop, remove_own_headers};
use super::limits::BodyReadError;
use super::proxy::{Endpoint, LocalResponse, ShapingReport};
use super::state::GatewayState;
use super::upstream::{Upstream, UpstreamError};
use ctxhost_dialects::DialectName;
use ctxhost_dialects::errors::error_body;
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// The upstream's response, without the headers of its connection.
pub(super) fn upstream_response(
    status: StatusCode,
    mut headers: HeaderMap,
    body: impl Into<Body>,
) -> Response<Body> {
    remove_hop_by_hop(&mut headers);
    // An upstream that is a ctxhost too would report its own engine under our names.
    remove_own_headers(&mut headers);
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A response of the proxy itself.
pub(super) fn local_response(local: LocalResponse, endpoint: &Endpoint) -> Response<Body> {
    let mut response = Response::new(Body::from(local.body));
    *response.status_mut() = local.status;
    let content_type = HeaderValue::from_static(local.content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    with_context_headers(response, &local.report, endpoint)
}

/// Adds the `x-ctxhost-*` headers, and the same as extensions for metrics and the access log.
pub(super) fn with_context_headers(
    response: Response<Body>,
    report: &ShapingReport,
    endpoint: &Endpoint,
) -> Response<Body> {
    let mut response = with_report(response, report);
    response.extensions_mut().insert(endpoint.clone());
    response
}

/// The same for a request without an endpoint.
pub(super) fn with_report(mut response: Response<Body>, report: &ShapingReport) -> Response<Body> {
    let tokens = report.tokens.map(|tokens| tokens.to_string());
    let max_tokens = report.max_tokens.map(|tokens| tokens.to_string());
    let values = [
        ("x-ctxhost-max-tokens", max_tokens.as_deref()),
        ("x-ctxhost-engine", Some(report.engine.as_str())),
        ("x-ctxhost-tokens", tokens.as_deref()),
        ("x-ctxhost-compaction", Some(report.compaction)),
        ("x-ctxhost-session", Some(report.session.as_str())),
    ];
    for (name, value) in values {
        let value = value.filter(|value| !value.is_empty());
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response.extensions_mut().insert(report.clone());
    response
}

/// A plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// A JSON document.
pub(super) fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error of the gateway, in the client's dialect. The message says what to do next.
pub(super) fn error_response(
    dialect: DialectName,
    status: StatusCode,
    message: &str,
) -> Response<Body> {
    let mut response = json(status, error_body(dialect, status.as_u16(), message).to_string());
    // SDKs wait as long as this header says, and some give up without it.
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Too many requests are in flight.
pub(super) fn overloaded(dialect: DialectName) -> Response<Body> {
    let message = "too many concurrent requests (gateway.max_requests); retry in 1 s";
    error_response(dialect, StatusCode::SERVICE_UNAVAILABLE, message)
}

/// No upstream serves the dialect.
pub(super) fn no_upstream(dialect: DialectName) -> Response<Body> {
    let message = "no upstream is configured for this API; set gateway.upstreams";
    error_response(dialect, StatusCode::BAD_GATEWAY, message)
}

/// The client's body was not read completely.
pub(super) fn body_read_failed(
    state: &GatewayState,
    dialect: DialectName,
    error: BodyReadError,
) -> Response<Body> {
    let (status, message) = match error {
        BodyReadError::TooLarge => {
            let max = state.max_body_bytes();
            // The smaller of two settings decides, and the message must name that one.
            let setting = if max < state.settings.max_body_bytes {
                "gateway.max_bodies_bytes"
            } else {
                "gateway.max_body_bytes"
            };
            let max = group_thousands(max);
            let message = format!("the request body is larger than {max} bytes ({setting})");
            (StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        BodyReadError::NoBudget => {
            state.stats.edge().bodies_rejected.inc();
            let budget = &state.body_budget;
            let [held, limit] = [budget.held_bytes(), budget.limit_bytes()].map(group_thousands);
            let message = format!(
                "not enough memory for the request body: other bodies hold {held} of {limit} bytes \
                 (gateway.max_bodies_bytes); retry in 1 s"
            );
            (StatusCode::SERVICE_UNAVAILABLE, message)
        }
        BodyReadError::TimedOut => {
            let message = "timed out reading the request body (gateway.client_timeout_ms, \
                           gateway.client_min_bytes_per_s)";
            (StatusCode::REQUEST_TIMEOUT, message.to_owned())
        }
        BodyReadError::Disconnected => {
            let message = "the connection closed before the request body was complete";
            (StatusCode::BAD_REQUEST, message.to_owned())
        }
    };
    error_response(dialect, status, &message)
}

/// The upstream sent no response head.
pub(super) fn upstream_failed(
    dialect: DialectName,
    upstream: &Upstream,
    error: &UpstreamError,
) -> Response<Body> {
    let host = upstream.host();
    tracing::warn!(upstream = host, ?error, "upstream request failed");
    let (status, message) = match error {
        UpstreamError::TimedOut(ms) => {
            let message = format!("{host} sent no response within {ms} ms (first_byte_timeout_ms)");
            (StatusCode::GATEWAY_TIMEOUT, message)
        }
        UpstreamError::Unreachable(cause) => {
            let (address, setting) = (upstream.address(), upstream.setting());
            let message = format!(
                "cannot connect to {address}: {cause}; check that this address is right ({setting}) \
                 and that the server is reachable"
            );
            (StatusCode::BAD_GATEWAY, message)
        }
        UpstreamError::NoResponse(cause) => {
            let message = format!(
                "no complete response from {host}: {cause}; retry the request, and if it fails again, see the \
                 server's log for the reason"
            );
            (StatusCode::BAD_GATEWAY, message)
        }
        UpstreamError::NoKey(cause) => {
            (StatusCode::BAD_GATEWAY, format!("cannot get the API key for {host}: {cause}"))
        }
    };
    error_response(dialect, status, &message)
}

/// The upstream closed its connection before it sent any content.
pub(super) fn upstream_broke_off(
    dialect: DialectName,
    upstream: &Upstream,
    cause: &str,
) -> Response<Body> {
    let message = format!("{} aborted its response before any content: {cause}", upstream.host());
    error_response(dialect, StatusCode::BAD_GATEWAY, &message)
}
