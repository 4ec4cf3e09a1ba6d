//! Model lists: the upstream's, with the context windows that the gateway knows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG};
use axum::http::{HeaderValue, Method, Response};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::limits::{self, ReadTimeouts};
use super::response_stream::StreamingBody;
use super::responses;
use super::state::GatewayState;
use super::upstream::{RequestHead, Upstream, UpstreamError};
use ctxhost_dialects::DialectName;
use ctxhost_models::ContextWindow;
use ctxhost_provider::windows::parse_windows;

/// The largest list that is read, in bytes.
const LIST_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Whether a request is for a list of models, or for one of them.
pub(super) fn is_model_list(head: &RequestHead) -> bool {
    let path = head.uri.path();
    let below =
        ["/v1beta", "/v1alpha", "/v1"].iter().find_map(|version| path.strip_prefix(version));
    let below = below.unwrap_or(path);
    let is_models = below == "/models" || below.starts_with("/models/");
    head.method == Method::GET && is_models && !below.contains(':')
}

/// Returns the upstream's list with windows; the models of the config if the upstream has no list.
pub(super) async fn list_models(
    state: &Arc<GatewayState>,
    dialect: DialectName,
    upstream: &Upstream,
    head: &RequestHead,
    permit: OwnedSemaphorePermit,
) -> Response<Body> {
    let mut head = head.clone();
    // The list is parsed, so it must not be compressed.
    head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let own = || own_list(state, dialect, &head);
    let response = match upstream.send(&head, Body::empty()).await {
        Ok(response) => response,
        Err(error) => {
            return own().unwrap_or_else(|| responses::upstream_failed(dialect, upstream, &error));
        }
    };
    let (mut parts, rest) = response.into_parts();
    // Many local servers have no model list.
    let has_none = matches!(parts.status.as_u16(), 404 | 405 | 501);
    if let Some(list) = has_none.then(own).flatten() {
        return list;
    }
    if !parts.status.is_success() {
        // Other errors (401, 429) are the client's to see.
        let body = StreamingBody::new(Vec::new(), Some(rest), upstream.idle_timeout, Some(permit));
        return responses::upstream_response(parts.status, parts.headers, body);
    }
    let idle = Duration::min(upstream.idle_timeout, Duration::from_secs(60));
    let timeouts = ReadTimeouts { idle, ..state.read_timeouts() };
    let Ok(list) =
        limits::read_body(Body::new(rest), LIST_MAX_BYTES, timeouts, &state.body_budget).await
    else {
        let error = UpstreamError::NoResponse("its model list was incomplete".into());
        return responses::upstream_failed(dialect, upstream, &error);
    };
    record_stated_windows(state, dialect, &list);
    let window = |model: &str| window_of(state, dialect, model);
    let updated = with_windows(dialect, &list, &window);
    if updated.is_some() {
        // Both headers describe the upstream's bytes.
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(ETAG);
    }
    responses::upstream_response(parts.status, parts.headers, updated.unwrap_or(list))
}

/// Records the windows that the upstream states, for the following requests.
fn record_stated_windows(state: &GatewayState, dialect: DialectName, list: &[u8]) {
    for (model, tokens) in parse_windows(list) {
        if let Some(upstream) = state.upstreams.select(dialect, Some(&model)) {
            state.proxy.set_stated_window(&upstream.name, &model, tokens);
        }
    }
}

/// The window that a request for the model is shaped for.
fn window_of(state: &GatewayState, dialect: DialectName, model: &str) -> Option<ContextWindow> {
    let upstream = state.upstreams.select(dialect, Some(model))?;
    state.proxy.window(&upstream.name, model)
}

/// The list with windows; `None` if none was added, so that the original bytes are forwarded.
fn with_windows(
    dialect: DialectName,
    list: &[u8],
    window: &dyn Fn(&str) -> Option<ContextWindow>,
) -> Option<Bytes> {
    let mut list: Value = serde_json::from_slice(list).ok()?;
    let mut changed = false;
    for name in ["data", "models"] {
        for model in list.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            changed |= insert_window(dialect, model, window);
        }
    }
    changed |= insert_window(dialect, &mut list, window);
    changed.then(|| list.to_string().into())
}

/// Adds the window under the field names that clients of the dialect read.
fn insert_window(
    dialect: DialectName,
    model: &mut Value,
    window: &dyn Fn(&str) -> Option<ContextWindow>,
) -> bool {
    let Some(model) = model.as_object_mut() else { return false };
    let name = |key: &str| model.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = name("id").or_else(|| name("name"));
    // Gemini names its models `models/NAME`.
    let name = name.as_deref().map(|name| name.trim_start_matches("models/"));
    let Some(window) = name.and_then(window) else { return false };
    let mut stated = fields(dialect).iter().filter_map(|field| model.get(*field)).peekable();
    let is_stated = stated.peek().is_some();
    // An estimate never replaces what the upstream states.
    if is_stated
        && (!window.is_certain || stated.any(|value| value.as_u64() == Some(window.tokens)))
    {
        return false;
    }
    for field in fields(dialect) {
        model.insert((*field).to_owned(), window.tokens.into());
    }
    true
}

fn fields(dialect: DialectName) -> &'static [&'static str] {
    match dialect {
        DialectName::GoogleGenerativeAi => &["inputTokenLimit"],
        DialectName::AnthropicMessages => &["max_input_tokens", "context_window"],
        _ => &["context_length", "context_window", "max_model_len"],
    }
}

/// The models of the config; `None` if it has none, or not the requested one.
fn own_list(
    state: &GatewayState,
    dialect: DialectName,
    head: &RequestHead,
) -> Option<Response<Body>> {
    let models = &state.models;
    let path = head.uri.path();
    let requested =
        path.split_once("/models/").map(|(_, name)| name).filter(|name| !name.is_empty());
    let names =
        models.keys().map(|name| name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name));
    let entries =
        names.filter(|name| requested.is_none_or(|requested| requested == *name)).map(|name| {
            let mut entry = entry(dialect, name);
            insert_window(dialect, &mut entry, &|model| window_of(state, dialect, model));
            entry
        });
    let mut entries: Vec<Value> = entries.collect();
    let list = match (requested, dialect) {
        (Some(_), _) => entries.pop()?,
        _ if entries.is_empty() => return None,
        (None, DialectName::GoogleGenerativeAi) => json!({ "models": entries }),
        (None, DialectName::AnthropicMessages) => json!({ "data": entries, "has_more": false }),
        (None, _) => json!({ "object": "list", "data": entries }),
    };
    Some(responses::json(axum::http::StatusCode::OK, list.to_string()))
}

fn entry(dialect: DialectName, name: &str) -> Value {
    let mut entry = Map::new();
    match dialect {
        DialectName::GoogleGenerativeAi => {
            entry.insert("name".into(), format!("models/{name}").into());
        }
        DialectName::AnthropicMessages => {
            entry.insert("type".into(), "model".into());
            entry.insert("id".into(), name.into());
            entry.insert("display_name".into(), name.into());
        }
        _ => {
            entry.insert("id".into(), name.into());
            entry.insert("object".into(), "model".into());
            entry.insert("owned_by".into(), "ctxhost".into());
        }
    }
    entry.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(model: &str) -> Option<ContextWindow> {
        let is_certain = model == "known";
        let window = ContextWindow { tokens: 32_000, is_certain, is_prompt_only: false };
        (is_certain || model == "guessed").then_some(window)
    }

    #[test]
    fn a_known_window_is_put_in_and_everything_else_stays() {
        let list = br#"{"object":"list","data":[{"id":"known","x":1.50},{"id":"other"}],"y":null}"#;
        let updated = with_windows(DialectName::OpenAiCompletions, list, &window).unwrap();
        let whole = r#"{"object":"list","data":[{"id":"known","x":1.5,"context_length":32000,"context_window":32000,"max_model_len":32000},{"id":"other"}],"y":null}"#;
        assert_eq!(updated, whole);
        let one = br#"{"name":"models/known","inputTokenLimit":1}"#;
        let updated = with_windows(DialectName::GoogleGenerativeAi, one, &window).unwrap();
        assert_eq!(updated, r#"{"name":"models/known","inputTokenLimit":32000}"#);
    }

    #[test]
    fn a_list_of_strangers_keeps_its_bytes() {
        let guessed = br#"{"id": "guessed", "max_input_tokens": 7}"#;
        for list in [&br#"{"data": [{"id": "other"}]}"#[..], guessed, b"[]", b"no json"] {
            assert_eq!(with_windows(DialectName::AnthropicMessages, list, &window), None);
        }
    }
}
