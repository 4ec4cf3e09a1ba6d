//! The neutral socket: other gateways send messages here, get smaller ones back, and ask their model
//! themselves.

mod request;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::{get, post};
use serde_json::json;

use self::request::CompressRequest;
use super::error_response::error_response;
use super::headers::strip_token;
use super::limits;
use super::originals::{is_hash, narrow_to_query};
use super::proxy::{ClientRequest, CompressError, CompressedMessages, Endpoint, ShapingReport};
use super::state::GatewayState;
use super::{handler, route};
use ctxhost_dialects::DialectName;

/// Whose form errors have here.
const DIALECT: DialectName = DialectName::OpenAiCompletions;

/// The header by which a client has its messages left alone.
const BYPASS: &str = "x-headroom-bypass";

/// The doors of the socket.
pub(super) fn routes(house: &Arc<GatewayState>) -> Router {
    Router::new()
        .route("/v1/compress", post(compress))
        .route("/v1/retrieve/{hash}", get(retrieve))
        .with_state(house.clone())
}

async fn compress(State(house): State<Arc<GatewayState>>, request: Request) -> Response<Body> {
    let Ok(_place) = house.request_permits.clone().try_acquire_owned() else {
        return handler::overloaded(DIALECT);
    };
    let (envelope, body) = strip_token(&house, request);
    let max = house.max_body_bytes();
    let body = match limits::read_body(body, max, house.read_timeouts(), &house.body_budget).await {
        Ok(body) => body,
        Err(unread) => return handler::body_read_failed(&house, DIALECT, unread),
    };
    let wanted = match CompressRequest::parse(&body) {
        Ok(wanted) => wanted,
        Err(message) => return error_response(DIALECT, StatusCode::BAD_REQUEST, &message),
    };
    let wish = wanted.limits();
    if house.settings.pass_through || is_bypassed(&envelope.headers) {
        return unchanged_response(&wanted);
    }
    let door = Endpoint::ChatCompletions;
    let upstream = route::select_upstream(&house.upstreams, &door, &body);
    let provider = upstream.map_or_else(|| door.provider().into(), |it| it.name.clone());
    let incoming =
        ClientRequest { endpoint: door, provider, headers: envelope.headers, body: body.clone() };
    match house.proxy.compress(&incoming, wish).await {
        Ok(Some(compressed)) => {
            compressed_response(&compressed).unwrap_or_else(|| unchanged_response(&wanted))
        }
        Ok(None) => unchanged_response(&wanted),
        Err(error) => {
            let status = match error {
                CompressError::Session(_) => StatusCode::BAD_REQUEST,
                CompressError::Engine(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            error_response(DIALECT, status, &error.to_string())
        }
    }
}

fn is_bypassed(headers: &HeaderMap) -> bool {
    headers.get(BYPASS).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

fn compressed_response(compressed: &CompressedMessages) -> Option<Response<Body>> {
    let wanted = CompressRequest::parse(&compressed.body).ok()?;
    let CompressedMessages { before_tokens, after_tokens, report: truth, .. } = compressed;
    Some(compress_response(wanted.messages(), *before_tokens, *after_tokens, truth))
}

/// Nobody did anything about the messages.
fn unchanged_response(wanted: &CompressRequest<'_>) -> Response<Body> {
    let truth =
        ShapingReport { engine: "none".into(), compaction: "none", ..ShapingReport::default() };
    let tokens = wanted.tokens();
    compress_response(wanted.messages(), tokens, tokens, &truth)
}

fn compress_response(
    messages: &str,
    before: u64,
    after: u64,
    truth: &ShapingReport,
) -> Response<Body> {
    let ratio = if before == 0 { 1.0 } else { after as f64 / before as f64 };
    let rest = json!({
        "tokens_saved": before.saturating_sub(after),
        "tokens_before": before,
        "tokens_after": after,
        "compression_ratio": (ratio * 10_000.0).round() / 10_000.0,
        "engine": truth.engine,
    });
    let rest = rest.to_string();
    let rest = rest.strip_prefix('{').unwrap_or(&rest);
    // The messages are copied, never read and written again.
    let body = Bytes::from(format!("{{\"messages\":{messages},{rest}"));
    handler::with_context_headers(
        handler::json(StatusCode::OK, body),
        truth,
        &Endpoint::ChatCompletions,
    )
}

async fn retrieve(
    State(house): State<Arc<GatewayState>>,
    Path(hash): Path<String>,
    uri: Uri,
) -> Response<Body> {
    if !is_hash(&hash) {
        let message = "a hash is 24 digits of 0-9 a-f, as it stands behind `hash=` in a message";
        return error_response(DIALECT, StatusCode::BAD_REQUEST, message);
    }
    let Ok(place) = house.request_permits.clone().try_acquire_owned() else {
        return handler::overloaded(DIALECT);
    };
    let query = query_of(&uri);
    let exchange = house.proxy.clone();
    let name = hash.clone();
    let found = tokio::task::spawn_blocking(move || {
        // It goes on when the client has gone.
        let _place = place;
        exchange.original(&name).map(|text| text.map(|text| narrow_to_query(&text, &query)))
    });
    match found.await {
        Ok(Ok(Some(text))) => {
            let body = json!({ "hash": hash, "original_content": text });
            handler::json(StatusCode::OK, body.to_string().into())
        }
        Ok(Ok(None)) => {
            let message = format!(
                "no original has the hash {hash}; it was never kept here, or was cleared away"
            );
            error_response(DIALECT, StatusCode::NOT_FOUND, &message)
        }
        Ok(Err(error)) => {
            tracing::error!(%error, hash, "an original cannot be read");
            let message =
                format!("the original of {hash} cannot be read; the gateway's log says why");
            error_response(DIALECT, StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
        Err(error) => {
            tracing::error!(%error, hash, "an original cannot be read");
            error_response(
                DIALECT,
                StatusCode::INTERNAL_SERVER_ERROR,
                "the original cannot be read",
            )
        }
    }
}

/// What `query=` says, as forms write it; nothing where it is not there.
fn query_of(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs.filter_map(|pair| pair.strip_prefix("query=")).next().unwrap_or_default();
    let bytes = value.replace('+', " ").into_bytes();
    let mut written = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        written.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    String::from_utf8_lossy(&written).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_forms_write_it() {
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
