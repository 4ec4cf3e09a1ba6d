//! Upstreams that are unreachable, silent, abort or refuse.

use axum::Router;
use axum::body::Body;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;

use crate::stage::{DOORS, Gate, Upstream, body_for, client, plain, serve};

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn message(error: &Value) -> &str {
    error["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn an_unreachable_upstream_is_reported_in_the_clients_dialect() {
    let upstream = nobody().await;
    let gate = Gate::before(&upstream, "").await;
    for door in DOORS {
        let answer = client().post(gate.at(door)).body(body_for(door)).send().await.unwrap();
        assert_eq!(answer.status(), 502, "{door}");
        let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert!(message(&error).contains(&upstream), "{error}");
        let setting = match () {
            () if door.starts_with("/v1beta") => "gateway.upstreams.gemini",
            () if door.starts_with("/v1/messages") => "gateway.upstreams.anthropic",
            () => "gateway.upstreams.openai",
        };
        assert!(message(&error).contains(setting), "{error}");
        if door.starts_with("/v1beta") {
            assert_eq!(error["error"]["status"], "UNAVAILABLE");
        } else if door.starts_with("/v1/messages") {
            assert_eq!(error["error"]["type"], "api_error");
        } else {
            assert_eq!(error["error"]["type"], "server_error");
        }
    }
}

/// A config whose one provider has these timeouts.
fn impatient(upstream: &str, timeouts: &str) -> String {
    format!(
        "[providers.slow]\ndialect = \"anthropic-messages\"\nbase_url = {upstream:?}\n{timeouts}\n\
         [gateway.upstreams]\nanthropic = \"slow\"\n"
    )
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_not_waited_for() {
    let house = Router::new().fallback(std::future::pending::<&str>);
    let config = impatient(&serve(house).await, "first_byte_timeout_ms = 50");
    let gate = Gate::before("", &config).await;
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 504);
    let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(error["error"]["type"], "timeout_error");
}

#[tokio::test]
async fn an_upstream_that_says_nothing_after_its_headers_is_not_waited_for() {
    let house = Router::new().fallback(|| async {
        let silence = stream::pending::<Result<&str, std::io::Error>>();
        plain(200, "text/event-stream", Body::from_stream(silence))
    });
    let gate = Gate::before("", &impatient(&serve(house).await, "idle_timeout_ms = 50")).await;
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    assert_eq!(request.send().await.unwrap().status(), 502);
}

#[tokio::test]
async fn a_stream_that_stands_still_is_broken_off() {
    let house = Router::new().fallback(|| async {
        let word = "data: {\"type\":\"content_block_delta\"}\n\n";
        let pieces = stream::iter([Ok::<_, std::io::Error>(word)]).chain(stream::pending());
        plain(200, "text/event-stream", Body::from_stream(pieces))
    });
    let gate = Gate::before("", &impatient(&serve(house).await, "idle_timeout_ms = 50")).await;
    let request = client().post(gate.at("/v1/messages")).body(body_for("/v1/messages"));
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.is_err(), "half an answer must not look like a whole one");
}

#[tokio::test]
async fn refusals_pass_as_they_are() {
    let page = "<html><title>502 Bad Gateway</title></html>";
    let limited =
        "{\"type\":\"error\", \"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow down\"}}";
    let upstream = Upstream::start(move |seen| match seen.header("x-which") {
        Some("page") => plain(502, "text/html", page),
        Some("limited") => {
            let mut answer = plain(429, "application/json", limited);
            answer.headers_mut().insert("retry-after", "17".parse().unwrap());
            answer
        }
        _ => plain(400, "application/json", Body::empty()),
    })
    .await;
    let gate = Gate::before(&upstream.url, "").await;
    let ask = |which: &'static str| {
        let request = client().post(gate.at("/v1/messages")).header("x-which", which);
        request.body(body_for("/v1/messages")).send()
    };
    let answer = ask("page").await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (502, page));
    let answer = ask("limited").await.unwrap();
    assert_eq!(answer.headers()["retry-after"], "17");
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (429, limited));
    let answer = ask("nothing").await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (400, ""));
    assert_eq!(upstream.count(), 3, "nothing was asked twice");
}

#[tokio::test]
async fn an_upstream_that_comes_back_is_asked_again() {
    use ctxhost_tests::rules::Wire;
    use ctxhost_tests::scripted::{Model, ScriptedServer};
    let server = ScriptedServer::start(Wire::Anthropic, Model::new(100_000));
    let gate = Gate::before(&server.url(), "").await;
    let ask = || async {
        let request =
            client().post(gate.at("/v1/messages")).header("anthropic-version", "2023-06-01");
        let request = request.header("x-api-key", "k").header("content-type", "application/json");
        let body = "{\"model\":\"m\",\"max_tokens\":64,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
        request.body(body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask().await, 200);
    server.go_down();
    assert_eq!(ask().await, 502);
    server.come_up();
    assert_eq!(ask().await, 200);
    assert!(server.broken().is_empty(), "{:?}", server.broken());
}
