//! A provider on the loopback that answers by a script and records its requests.

use std::io::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl SentRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A running server. It ends with the test's runtime.
pub(super) struct Server {
    pub(super) base_url: String,
    sent: Arc<Mutex<Vec<SentRequest>>>,
}

impl Server {
    /// A server with an answer for each request, by its number from 0.
    pub(super) async fn start(
        answer: impl Fn(usize, &SentRequest) -> Response + Clone + Send + Sync + 'static,
    ) -> Server {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let handler = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let one = SentRequest { uri: uri.to_string(), headers, body };
            let mut log = log.lock().unwrap();
            let response = answer(log.len(), &one);
            log.push(one);
            async move { response }
        };
        let router = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Server { base_url, sent }
    }

    pub(super) fn requests(&self) -> Vec<SentRequest> {
        self.sent.lock().unwrap().clone()
    }
}

/// A step of a scripted body.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Sends(String),
    Waits(u64),
    Breaks,
}

/// A stream of events with these steps.
pub(super) fn stream_of(steps: Vec<Step>) -> Response {
    let steps = stream::iter(steps).filter_map(|step| async move {
        match step {
            Step::Sends(text) => Some(Ok(text)),
            Step::Breaks => {
                // Earlier data is sent before the connection breaks.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some(Err(Error::other("the script breaks the connection")))
            }
            Step::Waits(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                None
            }
        }
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(Body::from_stream(steps)).unwrap()
}

/// A plain answer.
pub(super) fn plain(status: u16, headers: &[(&str, &str)], body: impl Into<String>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(body.into())).unwrap()
}

/// One event with JSON.
pub(super) fn event(data: Value) -> Step {
    Step::Sends(format!("data: {data}\n\n"))
}

/// A chunk with more text.
pub(super) fn text(text: &str) -> Step {
    event(json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

/// The end of a text, usage and all.
pub(super) fn end() -> Vec<Step> {
    vec![
        event(json!({"id": "cc-1", "model": "m-2026", "choices": [
            {"index": 0, "delta": {}, "finish_reason": "stop"}]})),
        event(json!({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 10}}})),
        Step::Sends("data: [DONE]\n\n".to_owned()),
    ]
}

/// A whole answer.
pub(super) fn whole(content: &str) -> Response {
    stream_of([vec![text(content)], end()].concat())
}
