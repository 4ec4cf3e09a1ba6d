//! Requests whose history the provider has, and those that only look like them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use super::super::core::lock;
use crate::proxy::{ClientRequest, Endpoint, EndpointAction, Proxy, ProxyAction, UpstreamRequest};
use ctxhost_agent::RuntimeBuilder;
use ctxhost_config::Config;
use ctxhost_dialects::{DialectName, FailureReason, ProviderError};

/// The lines of a test.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLines;

    fn make_writer(&'a self) -> LogLines {
        self.clone()
    }
}

async fn proxy(config: &str, folder: &Path) -> Arc<Proxy> {
    let config = Config::parse("c", config).unwrap();
    let builder = RuntimeBuilder::from_config(&config).without_builtin_tools();
    let runtime = builder.store_folder(folder.join("engines")).build().await.unwrap();
    Proxy::new(runtime, &config, folder)
}

fn request(endpoint: Endpoint, body: &Value) -> ClientRequest {
    ClientRequest {
        endpoint,
        provider: "openai".into(),
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_string()),
    }
}

fn responses() -> Endpoint {
    Endpoint::generate(DialectName::OpenAiResponses)
}

async fn forwarded(proxy: &Arc<Proxy>, request: &ClientRequest) -> UpstreamRequest {
    match proxy.handle(request).await {
        ProxyAction::Forward(forward) => forward,
        ProxyAction::Respond(response) => panic!("answered here: {response:?}"),
    }
}

/// The log of a history that its provider refuses as too large, and of a body that is not a request.
async fn logged(config: &str) -> String {
    let lines = LogLines::default();
    let log = tracing_subscriber::fmt().with_writer(lines.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(config, folder.path()).await;
    let stored = json!({ "model": "m", "previous_response_id": "r", "input": "hi" });
    let stored = forwarded(&proxy, &request(responses(), &stored)).await;
    let message = "Incorrect key sk-SECRET. PRIVATE prompt".to_owned();
    let failure = ProviderError::new(FailureReason::ContextOverflow, "openai", "m", message);
    let failure = ProviderError { status: Some(400), ..failure };
    assert!(proxy.handle_refusal(stored.in_flight, &failure).await.is_some());
    let unread = json!({ "model": "m", "input": { "text": "PRIVATE words" } });
    forwarded(&proxy, &request(responses(), &unread)).await;
    let text = lock(&lines.0).clone();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn the_log_has_the_text_of_a_provider_only_if_the_config_permits_it() {
    let log = logged("").await;
    assert!(!log.contains("PRIVATE") && !log.contains("SECRET"), "{log}");
    assert!(log.contains("status 400, the request is larger than the window"), "{log}");
    assert!(log.contains("`input`: found map, expected a string or a list of items"), "{log}");
    let log = logged("[telemetry]\nlog_content = true\n").await;
    assert!(log.contains("sk-SECRET. PRIVATE prompt"), "{log}");
}

#[tokio::test]
async fn a_prompt_that_is_a_string_is_shaped_and_sent_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy("[models.m]\nwindow_tokens = 20000\n", folder.path()).await;
    let body = json!({ "model": "m", "input": "word ".repeat(200) });
    let prompt = request(responses(), &body);
    let forward = forwarded(&proxy, &prompt).await;
    assert_eq!(forward.body.as_ptr(), prompt.body.as_ptr(), "the client's own bytes");
    assert!(forward.report.tokens.is_some_and(|tokens| tokens > 100), "{:?}", forward.report);
    let session = forward.report.session.clone();
    // A client may send the same prompt as a list in its next request.
    let item = json!({ "type": "message", "role": "user", "content": body["input"] });
    let answer = json!({ "type": "message", "role": "assistant", "content": "yes" });
    let next = json!({ "type": "message", "role": "user", "content": "and now?" });
    let longer = request(responses(), &json!({ "model": "m", "input": [item, answer, next] }));
    assert_eq!(forwarded(&proxy, &longer).await.report.session, session);
    // What is too large for the window is refused or made smaller, as in a list.
    let huge = request(responses(), &json!({ "model": "m", "input": "word ".repeat(100_000) }));
    if let ProxyAction::Forward(forward) = proxy.handle(&huge).await {
        let sent = String::from_utf8_lossy(&forward.body);
        let start: String = sent.chars().take(300).collect();
        assert!(sent.len() < huge.body.len(), "{:?} {start}", forward.report);
    }
}

#[tokio::test]
async fn the_tokens_of_a_string_are_estimated_for_an_upstream_that_cannot_count() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy("", folder.path()).await;
    let endpoint = Endpoint { action: EndpointAction::CountTokens, ..responses() };
    let prompt = request(endpoint, &json!({ "model": "m", "input": "word ".repeat(200) }));
    let forward = forwarded(&proxy, &prompt).await;
    assert_eq!(forward.body, prompt.body);
    let counted = proxy.estimate_count(forward.in_flight).expect("an estimate");
    let counted: Value = serde_json::from_slice(&counted.body).unwrap();
    assert!(counted["input_tokens"].as_u64().is_some_and(|tokens| tokens > 100), "{counted}");
}
