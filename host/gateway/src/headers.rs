//! Removes headers that must not be forwarded: hop-by-hop headers and the gateway's own.

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::state::GatewayState;
use super::upstream::RequestHead;

/// Headers of one connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The prefix of the gateway's headers.
const OUR_HEADERS: &str = "x-ctxhost-";

/// The prefix of the gateway's cookies.
const OUR_COOKIES: &str = "ctxhost_ui";

/// Splits a request and removes everything that is for the gateway only.
pub(super) fn strip_gateway_headers(
    state: &GatewayState,
    request: Request<Body>,
) -> (RequestHead, Body) {
    let (mut head, body) = strip_token(state, request);
    remove_own_headers(&mut head.headers);
    (head, body)
}

/// The same, but keeps the `x-ctxhost-*` headers except for the token.
pub(super) fn strip_token(state: &GatewayState, request: Request<Body>) -> (RequestHead, Body) {
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    remove_hop_by_hop(&mut headers);
    state.auth.remove_token(&mut headers);
    remove_own_cookies(&mut headers);
    let uri = state.auth.without_token(parts.uri);
    (RequestHead { method: parts.method, uri, headers }, body)
}

/// Prepares the headers of a shaped request.
pub(super) fn prepare_for_upstream(headers: &mut HeaderMap) {
    remove_own_headers(headers);
    // The body may change, and the response must be readable for errors and usage.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Removes the cookies of the dashboard, which is on the same host.
fn remove_own_cookies(headers: &mut HeaderMap) {
    let is_ours = |pair: &str| pair.trim_start().starts_with(OUR_COOKIES);
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    if !lines.iter().any(|line| line.to_str().is_ok_and(|line| line.split(';').any(is_ours))) {
        return;
    }
    headers.remove(COOKIE);
    for line in lines {
        let Ok(text) = line.to_str() else { continue };
        // Only the gateway's own pairs are removed from a line.
        let left: Vec<&str> = text.split(';').filter(|pair| !is_ours(pair)).collect();
        let left = HeaderValue::from_str(left.join(";").trim());
        if let Some(left) = left.ok().filter(|left| !left.is_empty()) {
            headers.append(COOKIE, left);
        }
    }
}

/// Removes `x-ctxhost-*` headers: a client's are for this gateway, and an upstream's (another gateway) describe its own
/// request.
pub(super) fn remove_own_headers(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| name.as_str().starts_with(OUR_HEADERS);
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers and those that `connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // With chunked encoding a content-length is an error or request smuggling (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned());
    let named: Vec<String> = named.collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}
