//! Lists of models: as the upstream has them, with the windows put in that are known here.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG};
use axum::http::{HeaderValue, Method, Response};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::handler;
use super::limits::{self, ReadTimeouts};
use super::response_stream::StreamingBody;
use super::state::GatewayState;
use super::upstream::{RequestHead, Upstream};
use ctxhost_dialects::DialectName;
use ctxhost_models::ContextWindow;
use ctxhost_provider::windows::parse_windows;

/// The longest list that is read, in bytes.
const LIST_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Whether a list of models, or one of them, is asked for.
pub(super) fn is_model_list(envelope: &RequestHead) -> bool {
    let path = envelope.uri.path();
    let below =
        ["/v1beta", "/v1alpha", "/v1"].iter().find_map(|version| path.strip_prefix(version));
    let below = below.unwrap_or(path);
    let is_models = below == "/models" || below.starts_with("/models/");
    envelope.method == Method::GET && is_models && !below.contains(':')
}

/// The upstream's list with windows put in; our own where the upstream has none.
pub(super) async fn list_models(
    house: &Arc<GatewayState>,
    dialect: DialectName,
    upstream: &Upstream,
    envelope: &RequestHead,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let mut envelope = envelope.clone();
    envelope.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let own = || own_list(house, dialect, &envelope);
    let response = match upstream.send(&envelope, Body::empty()).await {
        Ok(response) => response,
        Err(trouble) => {
            return own().unwrap_or_else(|| handler::upstream_failed(dialect, upstream, &trouble));
        }
    };
    let (mut parts, rest) = response.into_parts();
    let has_none = matches!(parts.status.as_u16(), 404 | 405 | 501);
    if let Some(list) = has_none.then(own).flatten() {
        return list;
    }
    if !parts.status.is_success() {
        let passing =
            StreamingBody::new(Vec::new(), Some(rest), upstream.idle_timeout, Some(place));
        return handler::upstream_response(parts.status, parts.headers, passing);
    }
    let pause = Duration::min(upstream.idle_timeout, Duration::from_secs(60));
    let patience = ReadTimeouts { idle: pause, ..house.read_timeouts() };
    let Ok(list) =
        limits::read_body(Body::new(rest), LIST_MAX_BYTES, patience, &house.body_budget).await
    else {
        let trouble = super::upstream::UpstreamError::Unreachable("its list broke off".into());
        return handler::upstream_failed(dialect, upstream, &trouble);
    };
    record_stated_windows(house, dialect, &list);
    let window = |model: &str| window_of(house, dialect, model);
    let told = with_windows(dialect, &list, &window);
    if told.is_some() {
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(ETAG);
    }
    handler::upstream_response(parts.status, parts.headers, told.unwrap_or(list))
}

/// Notes the windows that the upstream states, which requests are shaped for from then on.
fn record_stated_windows(house: &GatewayState, dialect: DialectName, list: &[u8]) {
    for (model, tokens) in parse_windows(list) {
        if let Some(upstream) = house.upstreams.select(dialect, Some(&model)) {
            house.proxy.set_stated_window(&upstream.name, &model, tokens);
        }
    }
}

/// The window that a request for the model is shaped for.
fn window_of(house: &GatewayState, dialect: DialectName, model: &str) -> Option<ContextWindow> {
    let upstream = house.upstreams.select(dialect, Some(model))?;
    house.proxy.window(&upstream.name, model)
}

/// The list with windows; `None` where nothing is to be put in, so that its bytes stay.
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

/// Under the names that clients of the dialect look for.
fn insert_window(
    dialect: DialectName,
    model: &mut Value,
    window: &dyn Fn(&str) -> Option<ContextWindow>,
) -> bool {
    let Some(model) = model.as_object_mut() else { return false };
    let name = |key: &str| model.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = name("id").or_else(|| name("name"));
    let name = name.as_deref().map(|name| name.trim_start_matches("models/"));
    let Some(window) = name.and_then(window) else { return false };
    let mut said = fields(dialect).iter().filter_map(|field| model.get(*field)).peekable();
    let is_said = said.peek().is_some();
    if is_said && (!window.is_certain || said.any(|value| value.as_u64() == Some(window.tokens))) {
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

/// The models of the config; `None` where it names none, or not the one that is asked for.
fn own_list(
    house: &GatewayState,
    dialect: DialectName,
    envelope: &RequestHead,
) -> Option<Response<Body>> {
    let models = &house.models;
    let path = envelope.uri.path();
    let asked = path.split_once("/models/").map(|(_, name)| name).filter(|name| !name.is_empty());
    let names = models.keys().map(|name| name.rsplit_once('/').map_or(name.as_str(), |it| it.1));
    let entries = names.filter(|name| asked.is_none_or(|asked| asked == *name)).map(|name| {
        let mut entry = entry(dialect, name);
        insert_window(dialect, &mut entry, &|model| window_of(house, dialect, model));
        entry
    });
    let mut entries: Vec<Value> = entries.collect();
    let list = match (asked, dialect) {
        (Some(_), _) => entries.pop()?,
        _ if entries.is_empty() => return None,
        (None, DialectName::GoogleGenerativeAi) => json!({ "models": entries }),
        (None, DialectName::AnthropicMessages) => json!({ "data": entries, "has_more": false }),
        (None, _) => json!({ "object": "list", "data": entries }),
    };
    Some(handler::json(axum::http::StatusCode::OK, list.to_string().into()))
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
        let told = with_windows(DialectName::OpenAiCompletions, list, &window).unwrap();
        let whole = r#"{"object":"list","data":[{"id":"known","x":1.5,"context_length":32000,"context_window":32000,"max_model_len":32000},{"id":"other"}],"y":null}"#;
        assert_eq!(told, whole);
        let one = br#"{"name":"models/known","inputTokenLimit":1}"#;
        let told = with_windows(DialectName::GoogleGenerativeAi, one, &window).unwrap();
        assert_eq!(told, r#"{"name":"models/known","inputTokenLimit":32000}"#);
    }

    #[test]
    fn a_list_of_strangers_keeps_its_bytes() {
        let said = br#"{"id": "guessed", "max_input_tokens": 7}"#;
        for list in [&br#"{"data": [{"id": "other"}]}"#[..], said, b"[]", b"no json"] {
            assert_eq!(with_windows(DialectName::AnthropicMessages, list, &window), None);
        }
    }
}
