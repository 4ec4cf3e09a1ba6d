//! Queries for the window of a model.

use super::*;
use ctxhost_dialects::anthropic::Anthropic;
use ctxhost_dialects::gemini::Gemini;
use ctxhost_dialects::ollama::Ollama;

/// Queries a window: the result, and the address and body of the request.
async fn query_window_of(
    dialect: Box<dyn Dialect>,
    status: u16,
    body: &'static str,
) -> (Result<Option<u64>, FailureReason>, String, Value) {
    let server = always(move || plain(status, &[], body)).await;
    let root = server.base_url.trim_end_matches("/v1").to_owned();
    let base_url = if dialect.api().starts_with("openai") { &server.base_url } else { &root };
    let client = HttpClient::new("here", dialect, ApiKey::none(), &settings(base_url)).unwrap();
    let window = client.query_window("m").await.map_err(|error| error.reason);
    let [sent] = server.requests().try_into().unwrap();
    (window, sent.uri, sent.body)
}

#[tokio::test]
async fn each_dialect_has_its_own_question() {
    let list =
        r#"{"data":[{"id":"other","context_window":1000},{"id":"m","max_model_len":32768}]}"#;
    let listed = (Ok(Some(32_768)), "/v1/models".to_owned(), Value::Null);
    let chat = Box::new(OpenAiChat::new(Compat::default()));
    assert_eq!(query_window_of(chat, 200, list).await, listed);
    assert_eq!(query_window_of(Box::new(OpenAiResponses), 200, list).await, listed);
    let one = r#"{"id":"m","max_input_tokens":200000}"#;
    let stated = (Ok(Some(200_000)), "/v1/models/m".to_owned(), Value::Null);
    assert_eq!(query_window_of(Box::new(Anthropic::default()), 200, one).await, stated);
    let one = r#"{"name":"models/m","inputTokenLimit":1048576}"#;
    let stated = (Ok(Some(1_048_576)), "/v1beta/models/m".to_owned(), Value::Null);
    assert_eq!(query_window_of(Box::new(Gemini), 200, one).await, stated);
    let shown = r#"{"model_info":{"qwen3.context_length":40960}}"#;
    let stated = (Ok(Some(40_960)), "/api/show".to_owned(), json!({ "model": "m" }));
    assert_eq!(query_window_of(Box::new(Ollama), 200, shown).await, stated);
}

#[tokio::test]
async fn a_provider_without_windows_is_queried_once() {
    let ask = async |status, body| {
        query_window_of(Box::new(OpenAiChat::new(Compat::default())), status, body).await.0
    };
    assert_eq!(ask(200, r#"{"data":[{"id":"m"}]}"#).await, Ok(None));
    assert!(ask(503, "busy").await.is_err());
    assert_eq!(ask(200, "<html>").await, Err(FailureReason::InvalidResponse));
}
