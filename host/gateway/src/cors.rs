//! What the browsers of pages in `gateway.origins` are told, so that they let the page ask and read.
//!
//! Only a page that is named hears anything, and by its own name: never all of them, and no page asks with
//! cookies, because none is needed.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

/// How the names of all headers of this kind begin.
const CORS_HEADER_PREFIX: &str = "access-control-";

/// A page on the internet asks somebody on this machine; browsers have that allowed apart.
const REQUEST_PRIVATE_NETWORK: &str = "access-control-request-private-network";
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";

/// How long a browser may go by such an answer, in seconds: the gateway's origins change when it starts.
const TEN_MINUTES: HeaderValue = HeaderValue::from_static("600");

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// Whether a browser asks whether its page may ask.
pub(super) fn is_preflight(request: &Request) -> bool {
    let is_asked = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    request.method() == Method::OPTIONS && is_asked
}

/// The answer to that: it may, with whatever headers it wants. The token is asked for later.
pub(super) fn preflight_response(asked: &HeaderMap, page: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, TEN_MINUTES);
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    allow_origin(headers, page);
    response
}

/// An answer that a page may read, with all of its headers. What an upstream says of pages is about those
/// that ask it directly.
pub(super) fn with_cors_headers(mut response: Response<Body>, page: HeaderValue) -> Response<Body> {
    let headers = response.headers_mut();
    let is_about_pages = |name: &&HeaderName| name.as_str().starts_with(CORS_HEADER_PREFIX);
    let of_upstream: Vec<HeaderName> = headers.keys().filter(is_about_pages).cloned().collect();
    for name in of_upstream {
        headers.remove(name);
    }
    let names = headers.keys().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    if let Ok(names) = HeaderValue::try_from(names) {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
    allow_origin(headers, page);
    response
}

fn allow_origin(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.append(VARY, HeaderValue::from_static("origin"));
}
