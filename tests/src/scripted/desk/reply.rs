//! Responses.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use serde_json::Value;

use crate::scripted::stream::{self, End};

/// JSON in one piece.
pub(super) fn json(status: u16, body: &Value) -> Response<Body> {
    text(status, "application/json", &body.to_string())
}

/// A text in one piece.
pub(super) fn text(status: u16, kind: &str, body: &str) -> Response<Body> {
    build(status, kind, Body::from(body.to_owned()))
}

/// The page of a proxy.
pub(super) fn html() -> Response<Body> {
    let page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";
    text(502, "text/html", page)
}

/// A body in chunks.
pub(super) fn stream(
    kind: &str,
    frames: &[String],
    end: End,
    random: &mut fastrand::Rng,
) -> Response<Body> {
    build(200, kind, stream::body(frames, end, random))
}

/// The same with the header that says when to come again.
pub(super) fn with_retry_after(mut response: Response<Body>, seconds: u64) -> Response<Body> {
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

/// Breaks the JSON of one frame, not that of the last: it may be a mere mark of the end.
pub(super) fn spoil(frames: &mut [String]) {
    let Some(frame) = frames.iter_mut().find(|frame| frame.contains('{')) else { return };
    *frame = frame.replacen('{', "{,", 1);
}

fn build(status: u16, kind: &str, body: Body) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind).body(body);
    response.expect("a status and a type make a response")
}
