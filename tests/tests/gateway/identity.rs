//! Unshaped requests and responses are unchanged: bytes, paths, headers.

use axum::body::Bytes;
use axum::http::Method;
use ctxhost_tests::rules::Wire;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::overflow::{long_conversation, request};
use crate::stage::{DOORS, Gate, Upstream, body_for, client, plain};

const ANSWER: &str = "{\"odd\" : [1.50,  null],\t\"text\":\"\\u00e9\"}\n";

/// Routes that no engine sees.
const OTHER_ROUTES: [(&str, &str); 6] = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/messages/batches?after=x%20y"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/conversations/c%2F1"),
    ("PUT", "/anything//at/all/"),
    ("OPTIONS", "/v1/files"),
];

#[tokio::test]
async fn every_door_forwards_the_very_bytes() {
    let upstream = Upstream::start(|_| {
        let mut answer = plain(200, "application/json; charset=utf-8", ANSWER);
        answer.headers_mut().insert("request-id", "req_1".parse().unwrap());
        // Another gateway behind this one speaks of other requests.
        answer.headers_mut().insert("x-ctxhost-tokens", "7".parse().unwrap());
        answer.headers_mut().insert("x-ctxhost-anything", "7".parse().unwrap());
        answer.headers_mut().append("set-cookie", "a=1".parse().unwrap());
        answer.headers_mut().append("set-cookie", "b=2".parse().unwrap());
        answer
    })
    .await;
    let gate = Gate::before(&upstream.url, "").await;
    for door in DOORS {
        let body = body_for(door);
        let request = client()
            .post(gate.at(door))
            .header("content-type", "application/json")
            .header("x-api-key", "the client's own")
            .header("anthropic-beta", "one,two")
            .header("x-unknown", "\u{e9}")
            .header("connection", "x-of-the-connection")
            .header("x-of-the-connection", "1")
            .header("x-ctxhost-anything", "1")
            .body(body.clone());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{door}");
        let seen = upstream.last();
        assert_eq!(seen.body, body, "{door}");
        assert_eq!(seen.uri.to_string(), door);
        assert_eq!(seen.header("x-api-key"), Some("the client's own"));
        assert_eq!(seen.header("anthropic-beta"), Some("one,two"));
        assert_eq!(seen.headers["x-unknown"].as_bytes(), "\u{e9}".as_bytes());
        for gone in ["x-of-the-connection", "x-ctxhost-anything", "x-ctxhost-session"] {
            assert!(!seen.headers.contains_key(gone), "{gone}");
        }
        assert_eq!(answer.headers()["request-id"], "req_1");
        assert_eq!(answer.headers().get_all("set-cookie").iter().count(), 2);
        assert_eq!(answer.headers()["content-type"], "application/json; charset=utf-8");
        assert!(answer.headers().contains_key("x-ctxhost-engine"), "{door}");
        assert!(!answer.headers().contains_key("x-ctxhost-anything"), "{door}");
        assert_ne!(
            answer.headers().get("x-ctxhost-tokens").map(|it| it.as_bytes()),
            Some(&b"7"[..])
        );
        assert_eq!(answer.text().await.unwrap(), ANSWER, "{door}");
    }
}

#[tokio::test]
async fn a_compressed_body_is_read_and_goes_on_as_it_came() {
    let upstream = Upstream::start(|_| plain(200, "application/json", ANSWER)).await;
    let gate = Gate::before(&upstream.url, "[models.m]\nwindow_tokens = 20000\n").await;
    let ask = async |encoding: &str, body: Vec<u8>| {
        let asked = client().post(gate.at("/v1/responses")).header("content-encoding", encoding);
        let answer = asked.header("content-type", "application/json").body(body);
        let answer = answer.send().await.unwrap();
        answer.headers()["x-ctxhost-engine"].to_str().unwrap().to_owned()
    };
    let packed = |texts: &[String]| {
        let body = request(Wire::Responses, texts, false).to_string();
        compress_to_vec(body.as_bytes(), CompressionLevel::Fastest)
    };
    let small = packed(&["Where are we?".to_owned()]);
    assert_eq!(ask("zstd", small.clone()).await, "legacy");
    assert_eq!(upstream.last().body, small);
    assert_eq!(upstream.last().header("content-encoding"), Some("zstd"));
    // What is made smaller is written anew, and plainly.
    let large = long_conversation();
    assert_eq!(ask("zstd", packed(&large)).await, "legacy");
    let seen = upstream.last();
    assert_eq!(seen.header("content-encoding"), None);
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    assert!(body["input"].as_array().unwrap().len() < large.len());
    for (encoding, body) in [("br", small.clone()), ("zstd", b"no zstd".to_vec())] {
        assert_eq!(ask(encoding, body.clone()).await, "none");
        assert_eq!(upstream.last().body, body);
        assert_eq!(upstream.last().header("content-encoding"), Some(encoding));
    }
}

#[tokio::test]
async fn what_has_no_door_passes_both_ways() {
    let upstream = Upstream::start(|seen| {
        let mut answer = plain(207, "x/y", seen.body.clone());
        answer.headers_mut().insert("content-encoding", "strange".parse().unwrap());
        answer.headers_mut().insert("x-ctxhost-engine", "another".parse().unwrap());
        answer
    })
    .await;
    let gate = Gate::before(&upstream.url, "").await;
    for (method, path) in OTHER_ROUTES {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = Bytes::from_static(&[0, 255, b'\n', 7]);
        let request = client().request(method.clone(), gate.at(path)).body(body.clone());
        let request = request.header("accept-encoding", "br;q=1, zstd").send().await.unwrap();
        let seen = upstream.last();
        assert_eq!((seen.method.clone(), seen.uri.to_string()), (method, path.to_owned()));
        assert_eq!(seen.body, body);
        assert_eq!(seen.header("accept-encoding"), Some("br;q=1, zstd"));
        assert_eq!(request.status(), 207);
        assert_eq!(request.headers()["content-encoding"], "strange");
        assert!(!request.headers().contains_key("x-ctxhost-engine"));
        assert_eq!(request.bytes().await.unwrap(), body);
    }
}

#[tokio::test]
async fn with_pass_through_no_door_is_looked_at() {
    let upstream = Upstream::start(|_| plain(200, "application/json", ANSWER)).await;
    let gate = Gate::before(&upstream.url, "gateway.pass_through = true").await;
    let request = client().post(gate.at("/v1/messages")).body("no JSON").send().await.unwrap();
    assert!(!request.headers().contains_key("x-ctxhost-engine"));
    assert_eq!(upstream.last().body, "no JSON");
}

#[tokio::test]
async fn looks_at_the_root_and_websockets_are_answered_here() {
    let upstream = Upstream::start(|_| plain(500, "text/plain", "not asked")).await;
    let gate = Gate::before(&upstream.url, "").await;
    assert_eq!(client().head(gate.at("/")).send().await.unwrap().status(), 200);
    for path in ["/health", "/healthz", "/readyz"] {
        assert_eq!(client().get(gate.at(path)).send().await.unwrap().status(), 200, "{path}");
    }
    let upgrade = client()
        .get(gate.at("/v1/responses"))
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13");
    let refused = upgrade.send().await.unwrap();
    assert_eq!(refused.status(), 426);
    assert!(refused.text().await.unwrap().contains("\"error\""));
    assert_eq!(upstream.count(), 0);
    // Java's client offers HTTP/2 in this way, and goes on without.
    let offer = client()
        .post(gate.at("/v1/embeddings"))
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAEAAEAA");
    assert_eq!(offer.send().await.unwrap().text().await.unwrap(), "not asked");
    assert!(!upstream.last().headers.contains_key("http2-settings"));
}

#[test]
fn whatever_a_body_is_it_arrives_as_it_was_and_so_does_the_answer() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (upstream, gate) = runtime.block_on(async {
        let upstream = Upstream::start(|seen| plain(200, "x/y", seen.body.clone())).await;
        let gate = Gate::before(&upstream.url, "").await;
        (upstream, gate)
    });
    let client = client();
    let near_json = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400).prop_map(Bytes::from),
        "[\\[\\]{}\",:a-z0-9 \\\\]{0,200}".prop_map(Bytes::from),
        broken_bodies(),
    ];
    let mut runner = TestRunner::new(Cases::with_cases(96));
    let strategy = (near_json, prop::sample::select(&DOORS[..]));
    let outcome = runner.run(&strategy, |(body, door)| {
        let answer = runtime.block_on(async {
            let answer = client.post(gate.at(door)).body(body.clone()).send().await.unwrap();
            (answer.status().as_u16(), answer.bytes().await.unwrap())
        });
        prop_assert_eq!(&upstream.last().body, &body);
        prop_assert_eq!(answer, (200, body));
        Ok(())
    });
    outcome.unwrap();
}

/// Bodies of the right shape in which one field is of another type, or that end too early.
fn broken_bodies() -> impl Strategy<Value = Bytes> {
    let wrong =
        prop::sample::select(vec!["null", "7", "\"x\"", "[]", "{}", "[[]]", "[{}]", "[null]"]);
    let field =
        prop::sample::select(vec!["messages", "input", "contents", "model", "stream", "system"]);
    (wrong, field, prop::sample::select(&DOORS[..]), any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(wrong, field, door, cut, is_cut)| {
            let body = body_for(door);
            let body = body.replacen('{', &format!("{{\"{field}\":{wrong},"), 1);
            let end = if is_cut { cut.index(body.len()) } else { body.len() };
            Bytes::from(body.as_bytes()[..end].to_vec())
        })
}
