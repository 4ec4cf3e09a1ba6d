//! Tests of an endpoint: batches, order, faults, time.

use std::sync::Mutex;
use std::time::Instant;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;

use super::*;

/// A request's texts with their number.
type Answer = fn(usize, &[String]) -> Response;

/// A server on the loopback; returns its address and the bodies it received.
async fn serve(answer: Answer) -> (String, Arc<Mutex<Vec<Value>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let bodies = received.clone();
    let handle = move |Json(body): Json<Value>| async move {
        let texts = serde_json::from_value(body["input"].clone()).unwrap_or_default();
        let number = {
            let mut bodies = bodies.lock().unwrap();
            bodies.push(body);
            bodies.len()
        };
        let texts: Vec<String> = texts;
        answer(number, &texts)
    };
    let router = Router::new().route("/v1/embeddings", post(handle));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, received)
}

fn rows(rows: &[Value]) -> Response {
    Json(json!({ "object": "list", "data": rows, "model": "other-name" })).into_response()
}

/// The length of each text and 1, the last text first.
fn lengths(texts: &[String]) -> Vec<Value> {
    let row =
        |(index, text): (usize, &String)| json!({ "index": index, "embedding": [text.len(), 1] });
    texts.iter().enumerate().rev().map(row).collect()
}

fn endpoint(url: &str, timeout_ms: u64) -> EndpointEmbedder {
    let settings = EndpointSettings {
        url: url.to_owned(),
        model: "m".into(),
        api_key_env: None,
        timeout_ms,
        batch_texts: 2,
        retries: 1,
    };
    EndpointEmbedder::new(settings, Handle::current()).unwrap()
}

async fn embed(url: &str, timeout_ms: u64, texts: &[&str]) -> Result<Embeddings> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let request = EmbedRequest { texts, ..EmbedRequest::default() };
    endpoint(url, timeout_ms).embed(request, None).await
}

/// The error of a server's answer to three texts.
async fn fault(answer: Answer) -> EngineError {
    let (url, _) = serve(answer).await;
    embed(&url, 5_000, &["a", "bb", "ccc"]).await.unwrap_err()
}

#[tokio::test]
async fn texts_go_in_batches_and_vectors_come_in_their_order() {
    let (url, received) = serve(|_, texts| rows(&lengths(texts))).await;
    for url in [url.clone(), format!("{url}/"), format!("{url}/v1"), format!("{url}/v1/embeddings")]
    {
        received.lock().unwrap().clear();
        let found = embed(&url, 5_000, &["a", "bb", "ccc"]).await.unwrap();
        assert_eq!(found.vectors().collect::<Vec<_>>(), [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]);
        assert_eq!((found.model.as_str(), found.dimensions), ("m", 2), "the configured name");
        let bodies = received.lock().unwrap().clone();
        assert_eq!(bodies.len(), 2);
        assert_eq!(
            bodies[0],
            json!({ "model": "m", "input": ["a", "bb"], "encoding_format": "float" })
        );
    }
    let nothing = embed(&url, 5_000, &[]).await.unwrap();
    assert_eq!((nothing.vectors().len(), nothing.model.as_str()), (0, "m"));
}

#[tokio::test]
async fn a_server_may_leave_the_index_out() {
    let (url, _) = serve(|_, texts| {
        rows(&texts.iter().map(|text| json!({ "embedding": [text.len()] })).collect::<Vec<_>>())
    })
    .await;
    let found = embed(&url, 5_000, &["a", "bb", "ccc"]).await.unwrap();
    assert_eq!(found.values, [1.0, 2.0, 3.0]);
}

#[tokio::test]
async fn invalid_answers_are_refused_with_what_is_wrong() {
    let wrong: [(Answer, &str); 6] = [
        (|_, texts| rows(&lengths(&texts[..1])), "1 vectors for 2 texts"),
        (
            |_, _| rows(&[json!({ "index": 7, "embedding": [1] })]),
            "index 7 twice or beyond 2 texts",
        ),
        (
            |_, _| {
                rows(&[
                    json!({ "index": 0, "embedding": [1] }),
                    json!({ "index": 0, "embedding": [1] }),
                ])
            },
            "index 0 twice",
        ),
        (
            |number, texts| {
                let row = |(index, _)| json!({ "index": index, "embedding": vec![1; number] });
                rows(&texts.iter().enumerate().map(row).collect::<Vec<_>>())
            },
            "a vector of 2 numbers after one of 1",
        ),
        (|_, _| rows(&[json!({ "index": 0, "embedding": ["x"] })]), "invalid type"),
        (
            |_, texts| rows(&texts.iter().map(|_| json!({ "embedding": [] })).collect::<Vec<_>>()),
            "of 0 numbers",
        ),
    ];
    for (answer, part) in wrong {
        let error = fault(answer).await;
        assert_eq!(error.kind, ErrorKind::ModelFailed);
        assert!(error.message.contains(part), "{part}: {error}");
    }
    // Not a number, and no JSON.
    let error = fault(|_, _| "{\"data\":[{\"embedding\":[NaN]}]}".into_response()).await;
    assert_eq!(error.kind, ErrorKind::ModelFailed, "{error}");
}

#[tokio::test]
async fn refusals_are_retried_once_and_keep_their_kind() {
    let busy: Answer = |number, texts| match number {
        1 => (StatusCode::TOO_MANY_REQUESTS, "slow down").into_response(),
        _ => rows(&lengths(texts)),
    };
    let (url, received) = serve(busy).await;
    assert!(embed(&url, 5_000, &["a"]).await.is_ok());
    assert_eq!(received.lock().unwrap().len(), 2);
    let always: Answer = |_, _| (StatusCode::TOO_MANY_REQUESTS, "slow down").into_response();
    assert_eq!(fault(always).await.kind, ErrorKind::ModelRateLimited);
    let denied: Answer = |_, _| (StatusCode::UNAUTHORIZED, "no key").into_response();
    assert_eq!(fault(denied).await.kind, ErrorKind::ModelAuth);
    let gone = embed("http://127.0.0.1:9", 5_000, &["a"]).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::ModelFailed, "{gone}");
}

#[tokio::test]
async fn a_slow_server_is_left_at_the_timeout_or_the_limit_of_the_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let begin = Instant::now();
    let error = embed(&url, 50, &["a"]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ModelTimeout);
    assert_eq!(error.message, "the embedder exceeded the timeout of 50 ms");
    let request = EmbedRequest { texts: vec!["a".into()], ..EmbedRequest::default() };
    let limit = Some(Duration::from_millis(20));
    let error = endpoint(&url, 60_000).embed(request, limit).await.unwrap_err();
    assert_eq!(error.message, "the embedder exceeded the timeout of 20 ms");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_missing_key_is_an_error_at_once() {
    let settings = EndpointSettings {
        url: "http://127.0.0.1:9".into(),
        model: "m".into(),
        api_key_env: Some("CTXHOST_TEST_NO_SUCH_KEY".into()),
        timeout_ms: 1,
        batch_texts: 1,
        retries: 0,
    };
    let error = EndpointEmbedder::new(settings, Handle::current()).unwrap_err();
    assert!(error.to_string().contains("CTXHOST_TEST_NO_SUCH_KEY"), "{error}");
}
