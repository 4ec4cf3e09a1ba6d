//! A failing engine behind a real gateway: the config decides whether the request fails or falls back.

use ctxhost_tests::chaos_library;
use reqwest::Response;
use serde_json::Value;

use crate::stage::{DOORS, Gate, Upstream, body_for, client, plain};

fn config(mode: &str, on_error: &str) -> String {
    format!(
        "[plugins]\nisolation = \"thread\"\non_engine_error = {on_error:?}\n\
         [plugins.slots]\ncontext_engine = \"chaos\"\n\
         [plugins.entries.chaos]\npath = {:?}\nconfig = {{ mode = {mode:?} }}\n",
        chaos_library()
    )
}

async fn upstream() -> Upstream {
    Upstream::start(|_| plain(200, "application/json", "{\"answer\": 42}")).await
}

async fn ask(gate: &Gate, path: &str, body: String) -> Response {
    client().post(gate.at(path)).body(body).send().await.unwrap()
}

fn reported(answer: &Response, header: &str) -> String {
    answer.headers().get(header).map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn count(gate: &Gate, line: &str) -> u64 {
    let text = client().get(gate.at("/metrics")).send().await.unwrap().text().await.unwrap();
    let found = text.lines().find_map(|it| it.strip_prefix(line));
    found.map_or(0, |value| value.trim().parse().unwrap())
}

/// Where an error of each dialect says whose it is.
fn kind(door: &str, error: &Value) -> String {
    let field = if door.starts_with("/v1beta") { "status" } else { "type" };
    error["error"][field].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_request_ends_with_its_engine_where_the_config_says_so() {
    for mode in ["panic-assemble", "error-assemble", "panic-ingest", "out-of-range"] {
        let upstream = upstream().await;
        let gate = Gate::before(&upstream.url, &config(mode, "fail")).await;
        for door in DOORS {
            let answer = ask(&gate, door, body_for(door)).await;
            assert_eq!(answer.status(), 500, "{mode} {door}");
            assert_eq!(reported(&answer, "x-ctxhost-engine"), "none", "{mode} {door}");
            assert_eq!(reported(&answer, "x-ctxhost-compaction"), "failed", "{mode} {door}");
            let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            let expected = match door {
                _ if door.starts_with("/v1beta") => "INTERNAL",
                _ if door.starts_with("/v1/messages") => "api_error",
                _ => "server_error",
            };
            assert_eq!(kind(door, &error), expected, "{mode} {door}: {error}");
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains("chaos"), "{mode} {door}: {message}");
        }
        assert_eq!(upstream.count(), 0, "{mode}: nothing was sent");
        let unshaped = count(&gate, "ctxhost_unshaped_total{reason=\"failed\"}").await;
        assert_eq!(unshaped, DOORS.len() as u64, "{mode}");
        let by = "{dialect=\"anthropic-messages\",status=\"500\"}";
        assert_eq!(count(&gate, &format!("ctxhost_request_total{by}")).await, 1, "{mode}");
        // What no engine is asked about does not end with it.
        assert_eq!(ask(&gate, DOORS[0], "{}".into()).await.status(), 200, "{mode}");
    }
}

#[tokio::test]
async fn what_is_answered_here_ends_with_its_engine_too() {
    let upstream = upstream().await;
    let gate = Gate::before(&upstream.url, &config("error-assemble", "fail")).await;
    for path in ["/v1/responses/compact", "/v1/compress"] {
        let list = if path == "/v1/compress" { "messages" } else { "input" };
        let body = format!(
            "{{\"model\": \"m\", \"{list}\": [{{\"role\": \"user\", \"content\": \"hello\"}}]}}"
        );
        let answer = ask(&gate, path, body).await;
        assert_eq!(answer.status(), 500, "{path}");
        assert!(answer.text().await.unwrap().contains("chaos"), "{path}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_request_goes_on_with_the_bundled_engine_where_it_may() {
    let upstream = upstream().await;
    let gate = Gate::before(&upstream.url, &config("panic-assemble", "fallback")).await;
    for door in DOORS {
        let answer = ask(&gate, door, body_for(door)).await;
        assert_eq!(answer.status(), 200, "{door}");
        assert_eq!(reported(&answer, "x-ctxhost-engine"), "legacy", "{door}");
        assert_eq!(upstream.last().body, body_for(door), "{door}");
    }
    // Events are counted beside the answers.
    let mut fallbacks = 0;
    for _ in 0..500 {
        fallbacks = count(&gate, "ctxhost_fallback_total{engine=\"chaos\"}").await;
        if fallbacks == DOORS.len() as u64 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(fallbacks, DOORS.len() as u64);
    let by = "{slot=\"context_engine\",configured=\"chaos\",active=\"legacy\"}";
    assert_eq!(count(&gate, &format!("ctxhost_engine_active{by}")).await, 1);
    assert_eq!(count(&gate, "ctxhost_unshaped_total{reason=\"failed\"}").await, 0);
}
