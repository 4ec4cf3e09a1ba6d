//! Whose headers are whose: those of one connection and our own go no further.

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, TRANSFER_ENCODING,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::house::House;
use super::upstream::Envelope;

/// Headers that speak of one connection, not of the request.
const OF_THE_CONNECTION: [&str; 8] = [
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
pub(super) fn unsealed(house: &House, request: Request<Body>) -> (Envelope, Body) {
    let (mut envelope, body) = unsealed_with_ours(house, request);
    forget_ours(&mut envelope.headers);
    (envelope, body)
}

/// The same with our own headers still in it, but for the token.
pub(super) fn unsealed_with_ours(house: &House, request: Request<Body>) -> (Envelope, Body) {
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    forget_connection(&mut headers);
    house.access.forget_token(&mut headers);
    forget_own_cookies(&mut headers);
    let uri = house.access.without_token(parts.uri);
    (Envelope { method: parts.method, uri, headers }, body)
}

/// The headers of a request whose answer is read along: its length is that of the body we send, and a
/// compressed answer could not be read.
pub(super) fn prepare(headers: &mut HeaderMap) {
    forget_ours(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Takes out the cookies of the dashboard, which lies on the same host.
fn forget_own_cookies(headers: &mut HeaderMap) {
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
pub(super) fn forget_ours(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| name.as_str().starts_with(OUR_HEADERS);
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Takes out what speaks of the connection, and what the connection's own headers name.
pub(super) fn forget_connection(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // Chunks say where the body ends; a length beside them is wrong or an attack (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned());
    let named: Vec<String> = named.collect();
    for name in named.iter().map(String::as_str).chain(OF_THE_CONNECTION) {
        headers.remove(name);
    }
}
