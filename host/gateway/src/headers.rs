//! Whose headers are whose: those of one connection and our own go no further.

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::state::GatewayState;
use super::upstream::RequestHead;

/// Headers that speak of one connection, not of the request.
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

/// What begins the names of our own headers.
const OUR_HEADERS: &str = "x-ctxhost-";

/// What begins the names of our own cookies.
const OUR_COOKIES: &str = "ctxhost_ui";

/// A request without what is meant for the gateway alone.
pub(super) fn strip_gateway_headers(
    house: &GatewayState,
    request: Request<Body>,
) -> (RequestHead, Body) {
    let (mut envelope, body) = strip_token(house, request);
    remove_own_headers(&mut envelope.headers);
    (envelope, body)
}

/// The same with our own headers still in it, but for the token.
pub(super) fn strip_token(house: &GatewayState, request: Request<Body>) -> (RequestHead, Body) {
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    remove_hop_by_hop(&mut headers);
    house.auth.remove_token(&mut headers);
    remove_own_cookies(&mut headers);
    let uri = house.auth.without_token(parts.uri);
    (RequestHead { method: parts.method, uri, headers }, body)
}

/// The headers of a request whose answer is read along: its length is that of the body we send, and a
/// compressed answer could not be read.
pub(super) fn prepare_for_upstream(headers: &mut HeaderMap) {
    remove_own_headers(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Takes out the cookies of the dashboard, which lies on the same host.
fn remove_own_cookies(headers: &mut HeaderMap) {
    let is_ours = |pair: &str| pair.trim_start().starts_with(OUR_COOKIES);
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    if !lines.iter().any(|line| line.to_str().is_ok_and(|line| line.split(';').any(is_ours))) {
        return;
    }
    headers.remove(COOKIE);
    for line in lines {
        let Ok(text) = line.to_str() else { continue };
        let left: Vec<&str> = text.split(';').filter(|pair| !is_ours(pair)).collect();
        let left = HeaderValue::from_str(left.join(";").trim());
        if let Some(left) = left.ok().filter(|left| !left.is_empty()) {
            headers.append(COOKIE, left);
        }
    }
}

/// Takes out our own headers: those that a client sent are for us alone, and those of an upstream (another
/// gateway) are about another request.
pub(super) fn remove_own_headers(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| name.as_str().starts_with(OUR_HEADERS);
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Takes out what speaks of the connection, and what the connection's own headers name.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // Chunks say where the body ends; a length beside them is wrong or an attack (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned());
    let named: Vec<String> = named.collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}
