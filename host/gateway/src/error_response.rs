//! What the gateway itself has to complain of, in the form that the client's dialect has for errors.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};

use ctxhost_dialects::DialectName;
use ctxhost_dialects::errors::error_body;

/// An error of ours as an answer. The message says what to do next.
pub(super) fn error_response(
    dialect: DialectName,
    status: StatusCode,
    message: &str,
) -> Response<Body> {
    let mut response =
        Response::new(Body::from(error_body(dialect, status.as_u16(), message).to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
