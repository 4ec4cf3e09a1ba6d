//! CORS headers for the pages in `gateway.origins`.
//!
//! Only listed origins get headers, each with its own name and never `*`. Cookies are not allowed; the token is a
//! header.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

/// The prefix of all CORS headers.
const CORS_HEADER_PREFIX: &str = "access-control-";

/// Private network access: browsers ask before a public page may reach a local address.
const REQUEST_PRIVATE_NETWORK: &str = "access-control-request-private-network";
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";

/// How long a browser may cache a preflight response, in seconds. Origins only change at a restart.
const TEN_MINUTES: HeaderValue = HeaderValue::from_static("600");

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// Whether a request is a CORS preflight.
pub(super) fn is_preflight(request: &Request) -> bool {
    let is_asked = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    request.method() == Method::OPTIONS && is_asked
}

/// The preflight response: all requested headers are allowed. The actual request is checked for the token.
pub(super) fn preflight_response(request_headers: &HeaderMap, page: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, TEN_MINUTES);
    if let Some(names) = request_headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        // Repeated rather than `*`, which does not cover `authorization` (Fetch standard).
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if request_headers.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    allow_origin(headers, page);
    response
}

/// Makes a response readable for a page, with all of its headers. The upstream's own CORS headers are removed.
pub(super) fn with_cors_headers(mut response: Response<Body>, page: HeaderValue) -> Response<Body> {
    let headers = response.headers_mut();
    let is_about_pages = |name: &&HeaderName| name.as_str().starts_with(CORS_HEADER_PREFIX);
    let of_upstream: Vec<HeaderName> = headers.keys().filter(is_about_pages).cloned().collect();
    for name in of_upstream {
        headers.remove(name);
    }
    let names = headers.keys().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    if let Ok(names) = HeaderValue::try_from(names) {
        // Listed rather than `*`, which older browsers read as a literal name.
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
    allow_origin(headers, page);
    response
}

fn allow_origin(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
    // A cache must not return the response for one origin to another.
    headers.append(VARY, HeaderValue::from_static("origin"));
}
