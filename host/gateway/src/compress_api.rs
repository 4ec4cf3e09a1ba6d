//! The compression API: compresses messages for other gateways, which call the model themselves.

mod request;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::{get, post};
use serde_json::json;

use self::request::CompressRequest;
use super::compression::{ReceivedBody, UnreadBody};
use super::headers::strip_token;
use super::limits;
use super::originals::{is_hash, narrow_to_query};
use super::proxy::{ClientRequest, CompressError, CompressedMessages, Endpoint, ShapingReport};
use super::responses::{self, error_response};
use super::state::GatewayState;
use ctxhost_dialects::DialectName;

/// The dialect of errors.
const DIALECT: DialectName = DialectName::OpenAiCompletions;

/// The header with which a client of headroom's API turns compression off.
const BYPASS: &str = "x-headroom-bypass";

/// The routes of the API.
pub(super) fn routes(state: &Arc<GatewayState>) -> Router {
    Router::new()
        .route("/v1/compress", post(compress))
        .route("/v1/retrieve/{hash}", get(retrieve))
        .with_state(state.clone())
}

async fn compress(State(state): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let Ok(_permit) = state.request_permits.clone().try_acquire_owned() else {
        return responses::overloaded(DIALECT);
    };
    let (head, body) = strip_token(&state, request);
    let max = state.max_body_bytes();
    let body = match limits::read_body(body, max, state.read_timeouts(), &state.body_budget).await {
        Ok(body) => body,
        Err(error) => return responses::body_read_failed(&state, DIALECT, error),
    };
    let body = match ReceivedBody::decode(&head.headers, &body, max, &state.body_budget).await {
        Ok(ReceivedBody::Plain) => body,
        Ok(ReceivedBody::Compressed(compressed)) => compressed.decoded().clone(),
        Ok(ReceivedBody::Unread(error)) => return unread_response(&error),
        Err(error) => return responses::body_read_failed(&state, DIALECT, error),
    };
    let request_body = match CompressRequest::parse(&body) {
        Ok(request_body) => request_body,
        Err(message) => return error_response(DIALECT, StatusCode::BAD_REQUEST, &message),
    };
    let limits = request_body.limits();
    let endpoint = Endpoint::generate(DIALECT);
    let upstream = state.upstreams.select_for(&endpoint, &body);
    let provider =
        upstream.map_or_else(|| endpoint.provider().into(), |upstream| upstream.name.clone());
    let client_request =
        ClientRequest { endpoint, provider, headers: head.headers, body: body.clone() };
    let is_off = state.settings.pass_through || is_bypassed(&client_request.headers);
    let compressed =
        if is_off { Ok(None) } else { state.proxy.compress(&client_request, limits).await };
    match compressed.map(|compressed| compressed.as_ref().and_then(compressed_response)) {
        Ok(Some(response)) => response,
        Ok(None) => {
            // Counted as for compressed messages, so that a client can compare the numbers of its calls.
            let tokens = state.proxy.estimate_request(&client_request).await;
            unchanged_response(&request_body, tokens)
        }
        Err(error) => {
            let status = match error {
                CompressError::Session(_) => StatusCode::BAD_REQUEST,
                CompressError::Engine(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            error_response(DIALECT, status, &error.to_string())
        }
    }
}

fn unread_response(error: &UnreadBody) -> Response<Body> {
    let status = match error {
        UnreadBody::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        UnreadBody::Damaged => StatusCode::BAD_REQUEST,
    };
    error_response(DIALECT, status, &format!("{error}; send JSON, uncompressed or as zstd"))
}

fn is_bypassed(headers: &HeaderMap) -> bool {
    headers.get(BYPASS).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

fn compressed_response(compressed: &CompressedMessages) -> Option<Response<Body>> {
    let request_body = CompressRequest::parse(&compressed.body).ok()?;
    let CompressedMessages { before_tokens, after_tokens, report, .. } = compressed;
    Some(compress_response(request_body.messages(), *before_tokens, *after_tokens, report))
}

/// `tokens` is the estimate of the proxy; `None` if it could not parse the messages.
fn unchanged_response(request_body: &CompressRequest<'_>, tokens: Option<u64>) -> Response<Body> {
    let report = ShapingReport::unshaped("none", "");
    let tokens = tokens.unwrap_or_else(|| request_body.tokens());
    compress_response(request_body.messages(), tokens, tokens, &report)
}

fn compress_response(
    messages: &str,
    before: u64,
    after: u64,
    report: &ShapingReport,
) -> Response<Body> {
    let ratio = if before == 0 { 1.0 } else { after as f64 / before as f64 };
    let rest = json!({
        "tokens_saved": before.saturating_sub(after),
        "tokens_before": before,
        "tokens_after": after,
        "compression_ratio": (ratio * 10_000.0).round() / 10_000.0,
        "engine": report.engine,
    });
    let rest = rest.to_string();
    let rest = rest.strip_prefix('{').unwrap_or(&rest);
    // Copied, not parsed and serialized: the messages keep their bytes.
    let body = Bytes::from(format!("{{\"messages\":{messages},{rest}"));
    responses::with_context_headers(
        responses::json(StatusCode::OK, body),
        report,
        &Endpoint::generate(DIALECT),
    )
}

async fn retrieve(
    State(state): State<Arc<GatewayState>>,
    Path(hash): Path<String>,
    uri: Uri,
) -> Response<Body> {
    if !is_hash(&hash) {
        let message =
            "invalid hash: expected the 24 digits 0-9 a-f that follow `hash=` in a message";
        return error_response(DIALECT, StatusCode::BAD_REQUEST, message);
    }
    let Ok(permit) = state.request_permits.clone().try_acquire_owned() else {
        return responses::overloaded(DIALECT);
    };
    let query = query_of(&uri);
    let proxy = state.proxy.clone();
    let name = hash.clone();
    let found = tokio::task::spawn_blocking(move || {
        // The thread continues if the client disconnects.
        let _permit = permit;
        proxy.original(&name).map(|text| text.map(|text| narrow_to_query(&text, &query)))
    });
    match found.await {
        Ok(Ok(Some(text))) => {
            let body = json!({ "hash": hash, "original_content": text });
            responses::json(StatusCode::OK, body.to_string())
        }
        Ok(Ok(None)) => {
            let message = format!(
                "no original with the hash {hash}: it was never stored here, or was garbage-collected"
            );
            error_response(DIALECT, StatusCode::NOT_FOUND, &message)
        }
        Ok(Err(error)) => {
            tracing::error!(%error, hash, "cannot read an original");
            let message =
                format!("cannot read the original {hash}; see the gateway's log for the cause");
            error_response(DIALECT, StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
        Err(error) => {
            tracing::error!(%error, hash, "cannot read an original");
            error_response(DIALECT, StatusCode::INTERNAL_SERVER_ERROR, "cannot read the original")
        }
    }
}

/// The decoded value of `query=`; empty if there is none.
fn query_of(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs.filter_map(|pair| pair.strip_prefix("query=")).next().unwrap_or_default();
    let bytes = value.replace('+', " ").into_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_as_a_form_value() {
        let check = |path: &'static str, expected| {
            assert_eq!(query_of(&Uri::from_static(path)), expected, "{path}");
        };
        check("/x?query=a+b%20c%2Bd%C3%A9", "a b c+d\u{e9}");
        check("/x?n=1&query=x=y&query=z", "x=y");
        check("/x?query=100%&n=1", "100%");
        check("/x?query=%zz%4", "%zz%4");
        check("/x?other=1", "");
        check("/x", "");
    }
}
