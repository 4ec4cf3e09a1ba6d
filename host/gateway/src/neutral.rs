//! The neutral socket: other gateways send messages here, get smaller ones back, and ask their model
//! themselves.

mod wanted;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::routing::{get, post};
use serde_json::json;

use self::wanted::Wanted;
use super::complaint::complaint;
use super::exchange::{Compressed, Door, Incoming, Truth, Uncompressed};
use super::headers::unsealed_with_ours;
use super::house::House;
use super::limits;
use super::originals::{is_hash, narrowed};
use super::{route, traffic};
use ctxhost_dialects::DialectName;

/// Whose form errors have here.
const DIALECT: DialectName = DialectName::OpenAiCompletions;

/// The header by which a client has its messages left alone.
const BYPASS: &str = "x-headroom-bypass";

/// The doors of the socket.
pub(super) fn routes(house: &Arc<House>) -> Router {
    Router::new()
        .route("/v1/compress", post(compress))
        .route("/v1/retrieve/{hash}", get(retrieve))
        .with_state(house.clone())
}

async fn compress(State(house): State<Arc<House>>, request: Request) -> Response<Body> {
    let Ok(_place) = house.places.clone().try_acquire_owned() else {
        return traffic::too_busy(DIALECT);
    };
    let (envelope, body) = unsealed_with_ours(&house, request);
    let max = house.max_body_bytes();
    let body = match limits::whole(body, max, house.patience(), &house.bodies).await {
        Ok(body) => body,
        Err(unread) => return traffic::not_read(&house, DIALECT, unread),
    };
    let wanted = match Wanted::of(&body) {
        Ok(wanted) => wanted,
        Err(message) => return complaint(DIALECT, StatusCode::BAD_REQUEST, &message),
    };
    let wish = wanted.wish();
    if house.settings.pass_through || is_bypassed(&envelope.headers) {
        return as_they_came(&wanted);
    }
    let door = Door::ChatCompletions;
    let upstream = route::upstream(&house.upstreams, &door, &body);
    let provider = upstream.map_or_else(|| door.provider().into(), |it| it.name.clone());
    let incoming = Incoming { door, provider, headers: envelope.headers, body: body.clone() };
    match house.exchange.compress(&incoming, wish).await {
        Ok(Some(compressed)) => smaller(&compressed).unwrap_or_else(|| as_they_came(&wanted)),
        Ok(None) => as_they_came(&wanted),
        Err(error) => {
            let status = match error {
                Uncompressed::Session(_) => StatusCode::BAD_REQUEST,
                Uncompressed::Engine(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            complaint(DIALECT, status, &error.to_string())
        }
    }
}

fn is_bypassed(headers: &HeaderMap) -> bool {
    headers.get(BYPASS).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

fn smaller(compressed: &Compressed) -> Option<Response<Body>> {
    let wanted = Wanted::of(&compressed.body).ok()?;
    let Compressed { before_tokens, after_tokens, truth, .. } = compressed;
    Some(answer(wanted.messages(), *before_tokens, *after_tokens, truth))
}

/// Nobody did anything about the messages.
fn as_they_came(wanted: &Wanted<'_>) -> Response<Body> {
    let truth = Truth { engine: "none".into(), compaction: "none", ..Truth::default() };
    let tokens = wanted.tokens();
    answer(wanted.messages(), tokens, tokens, &truth)
}

fn answer(messages: &str, before: u64, after: u64, truth: &Truth) -> Response<Body> {
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
    traffic::told(traffic::json(StatusCode::OK, body), truth, &Door::ChatCompletions)
}

async fn retrieve(
    State(house): State<Arc<House>>,
    Path(hash): Path<String>,
    uri: Uri,
) -> Response<Body> {
    if !is_hash(&hash) {
        let message = "a hash is 24 digits of 0-9 a-f, as it stands behind `hash=` in a message";
        return complaint(DIALECT, StatusCode::BAD_REQUEST, message);
    }
    let Ok(place) = house.places.clone().try_acquire_owned() else {
        return traffic::too_busy(DIALECT);
    };
    let query = query_of(&uri);
    let exchange = house.exchange.clone();
    let name = hash.clone();
    let found = tokio::task::spawn_blocking(move || {
        // It goes on when the client has gone.
        let _place = place;
        exchange.original(&name).map(|text| text.map(|text| narrowed(&text, &query)))
    });
    match found.await {
        Ok(Ok(Some(text))) => {
            let body = json!({ "hash": hash, "original_content": text });
            traffic::json(StatusCode::OK, body.to_string().into())
        }
        Ok(Ok(None)) => {
            let message = format!(
                "no original has the hash {hash}; it was never kept here, or was cleared away"
            );
            complaint(DIALECT, StatusCode::NOT_FOUND, &message)
        }
        Ok(Err(error)) => {
            tracing::error!(%error, hash, "an original cannot be read");
            let message =
                format!("the original of {hash} cannot be read; the gateway's log says why");
            complaint(DIALECT, StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
        Err(error) => {
            tracing::error!(%error, hash, "an original cannot be read");
            complaint(DIALECT, StatusCode::INTERNAL_SERVER_ERROR, "the original cannot be read")
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
