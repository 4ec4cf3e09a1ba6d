//! Size limits, reported in each dialect.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use serde_json::Value;

use crate::stage::{Gate, Upstream, client, plain, serve};

async fn json(answer: reqwest::Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_the_clients_words() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "gateway.max_body_bytes = 2000").await;
    let ask = |path: &str, body: String| client().post(gate.at(path)).body(body).send();
    let large = || "x".repeat(2_001);
    let (status, error) = json(ask("/v1/messages", large()).await.unwrap()).await;
    assert_eq!((status, &error["error"]["type"]), (413, &"request_too_large".into()));
    let (status, error) = json(ask("/v1/responses", large()).await.unwrap()).await;
    assert_eq!((status, &error["error"]["type"]), (413, &"invalid_request_error".into()));
    let path = "/v1beta/models/m:generateContent";
    let (status, error) = json(ask(path, large()).await.unwrap()).await;
    assert_eq!((status, &error["error"]["status"]), (413, &"INVALID_ARGUMENT".into()));
    // The same without a word of its length.
    let pieces =
        futures_util::stream::iter((0..3).map(|_| Ok::<_, std::io::Error>("x".repeat(900))));
    let body = reqwest::Body::wrap_stream(pieces);
    let answer = client().post(gate.at("/v1/messages")).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(upstream.count(), 0);
    assert_eq!(ask("/v1/messages", "x".repeat(2_000)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "gateway.max_header_bytes = 10000").await;
    let ask = |length: usize| {
        client()
            .post(gate.at("/v1/messages"))
            .header("x-long", "x".repeat(length))
            .body("{}")
            .send()
    };
    assert_eq!(ask(11_000).await.unwrap().status(), 431);
    assert_eq!(ask(5_000).await.unwrap().status(), 200);
    let many = |count: usize| {
        let lines = (0..count).map(|n| (format!("x-{n}"), "x".to_owned()));
        // Answered by the gateway itself: this upstream takes a hundred lines.
        let request = client().get(gate.at("/healthz"));
        lines.fold(request, |request, (name, value)| request.header(name, value)).send()
    };
    assert_eq!(many(500).await.unwrap().status(), 200);
}

#[tokio::test]
async fn numbers_without_an_end_are_as_good_as_large_ones() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let places = ["max_connections", "max_requests"];
    let times = ["client_timeout_ms", "client_stall_ms", "hold_ms", "drain_ms"];
    let names = places.iter().chain(&times);
    let lines = names.map(|name| format!("gateway.{name} = {}\n", i64::MAX));
    let gate = Gate::before(&upstream.url, &lines.collect::<String>()).await;
    let body = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true}";
    let answer = client().post(gate.at("/v1/chat/completions")).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(answer);
    gate.end.cancel();
    gate.task.await.unwrap();
}

#[tokio::test]
async fn a_client_that_sends_half_a_body_is_not_waited_for() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "gateway.client_timeout_ms = 50").await;
    let pieces = async_half();
    let request = client().post(gate.at("/v1/chat/completions")).body(pieces);
    let (status, error) = json(request.send().await.unwrap()).await;
    assert_eq!((status, error["error"]["message"].is_string()), (408, true));
    assert_eq!(upstream.count(), 0);
}

fn async_half() -> reqwest::Body {
    use futures_util::StreamExt as _;
    let half = futures_util::stream::iter([Ok::<_, std::io::Error>("{\"messages\":")]);
    reqwest::Body::wrap_stream(half.chain(futures_util::stream::pending()))
}

#[tokio::test]
async fn requests_above_the_limit_are_rejected_with_retry_after() {
    let house = Router::new().fallback(|| async {
        plain(
            200,
            "text/event-stream",
            Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>()),
        )
    });
    let gate = Gate::before(&serve(house).await, "gateway.max_requests = 1").await;
    // Its headers come, its body does not: the place is taken.
    let holding = client().get(gate.at("/v1/anything")).send().await.unwrap();
    let refused = client().post(gate.at("/v1/messages")).body("{}").send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let (status, error) = json(refused).await;
    assert_eq!((status, &error["error"]["type"]), (503, &"overloaded_error".into()));
    assert_eq!(client().get(gate.at("/readyz")).send().await.unwrap().status(), 503);
    drop(holding);
    while client().get(gate.at("/readyz")).send().await.unwrap().status() != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn more_connections_than_there_are_places_wait_at_the_door() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "gateway.max_connections = 1").await;
    let (first, second) = (client(), client());
    let answer = first.get(gate.at("/healthz")).send().await.unwrap();
    answer.text().await.unwrap();
    let waiting = tokio::spawn(second.get(gate.at("/healthz")).send());
    // The first connection is still open: while many answers come over it, none comes over the other.
    for _ in 0..50 {
        let answer = first.get(gate.at("/healthz")).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "ok\n");
    }
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
}

/// A body of so many bytes that any dialect's door passes on.
fn body_of(bytes: usize) -> String {
    let filler = "x".repeat(bytes.saturating_sub(70));
    let body = format!(
        r#"{{"model":"m","max_tokens":5,"messages":[{{"role":"user","content":"{filler}"}}]}}"#
    );
    assert!(body.len() <= bytes);
    body
}

async fn metric(gate: &Gate, name: &str) -> u64 {
    let text = client().get(gate.at("/metrics")).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

const ROOM: &str = "gateway.max_bodies_bytes = 100000\ngateway.max_body_bytes = 200000\n";

#[tokio::test]
async fn all_bodies_together_take_no_more_than_their_room() {
    let (go_on, goes_on) = tokio::sync::watch::channel(false);
    let held = goes_on.clone();
    let house = Router::new().fallback(move |body: axum::body::Bytes| {
        let mut held = held.clone();
        async move {
            // The answer begins when it is told to, and ends never.
            if body.len() > 50_000 {
                held.wait_for(|goes_on| *goes_on).await.unwrap();
            }
            let said = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n\
                 event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n";
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(said)]);
            let never = futures_util::stream::pending();
            let stream = futures_util::StreamExt::chain(first, never);
            plain(200, "text/event-stream", Body::from_stream(stream))
        }
    });
    let gate = Gate::before(&serve(house).await, ROOM).await;
    let ask = |path: &str, bytes: usize| client().post(gate.at(path)).body(body_of(bytes)).send();
    let first = tokio::spawn(ask("/v1/messages", 80_000));
    while metric(&gate, "ctxhost_buffered_bodies_bytes").await < 70_000 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for (path, at, word) in [
        ("/v1/messages", "/error/type", "overloaded_error"),
        ("/v1/chat/completions", "/error/type", "server_error"),
        ("/v1/compress", "/error/type", "server_error"),
        ("/v1beta/models/m:generateContent", "/error/status", "UNAVAILABLE"),
    ] {
        let refused = ask(path, 40_000).await.unwrap();
        assert_eq!(refused.headers()["retry-after"], "1", "{path}");
        let (status, error) = json(refused).await;
        assert_eq!((status, error.pointer(at).unwrap()), (503, &word.into()), "{path}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("of 100,000 bytes (gateway.max_bodies_bytes)"), "{message}");
    }
    assert_eq!(metric(&gate, "ctxhost_bodies_rejected_total").await, 4);
    // What fits beside it passes, and what never fits is told so.
    assert_eq!(ask("/v1/messages", 10_000).await.unwrap().status(), 200);
    let (status, error) = json(ask("/v1/messages", 150_000).await.unwrap()).await;
    assert_eq!(status, 413);
    assert!(error.to_string().contains("100,000 bytes (gateway.max_bodies_bytes)"), "{error}");
    // An answer that has begun needs the request no more.
    go_on.send(true).unwrap();
    let streaming = first.await.unwrap().unwrap();
    assert_eq!(streaming.status(), 200);
    assert_eq!(ask("/v1/messages", 80_000).await.unwrap().status(), 200);
    drop(streaming);
    while metric(&gate, "ctxhost_buffered_bodies_bytes").await > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_comes_compressed_takes_room_as_it_is_opened() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, ROOM).await;
    let ask = |bytes: usize| {
        let packed = compress_to_vec(body_of(bytes).as_bytes(), CompressionLevel::Fastest);
        assert!(packed.len() < 2_000);
        let asked = client().post(gate.at("/v1/chat/completions")).body(packed);
        asked.header("content-encoding", "zstd").send()
    };
    assert_eq!(ask(90_000).await.unwrap().status(), 200);
    assert_eq!(ask(50_000_000).await.unwrap().status(), 413);
    let at_once: Vec<_> = (0..12).map(|_| tokio::spawn(ask(60_000))).collect();
    for asked in at_once {
        let status = asked.await.unwrap().unwrap().status();
        assert!(status == 200 || status == 503, "{status}");
    }
    while metric(&gate, "ctxhost_buffered_bodies_bytes").await > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
