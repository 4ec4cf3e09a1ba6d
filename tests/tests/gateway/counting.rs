//! Token counting where the upstream has no endpoint for it.

use ctxhost_tests::rules::Wire;
use serde_json::{Value, json};

use crate::overflow::{long_conversation, request};
use crate::stage::{Gate, Upstream, client, plain};

const MESSAGES: &str = "/v1/messages/count_tokens";
const GEMINI: &str = "/v1beta/models/gemini-3-pro:countTokens";
const KNOWN: &str = "[models.m]\nwindow_tokens = 20000\n";

/// An upstream that answers, and counts nothing.
async fn upstream(status: u16, refusal: &'static str) -> Upstream {
    Upstream::start(move |seen| {
        if seen.uri.path().to_lowercase().contains("count") {
            plain(status, "application/json", refusal)
        } else {
            plain(200, "application/json", "{\"content\": []}")
        }
    })
    .await
}

async fn count(gate: &Gate, path: &str, body: &Value) -> (u16, Value) {
    let answer = client().post(gate.at(path)).body(body.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
}

#[tokio::test]
async fn an_estimate_stands_in_where_the_upstream_has_no_such_door() {
    let texts = &long_conversation()[..5];
    for (status, refusal) in
        [(404, "{\"detail\": \"Not Found\"}"), (405, ""), (404, "<html>404</html>"), (501, "")]
    {
        let upstream = upstream(status, refusal).await;
        let gate = Gate::before(&upstream.url, KNOWN).await;
        let body = request(Wire::Anthropic, texts, false);
        let (reported, counted) = count(&gate, MESSAGES, &body).await;
        assert_eq!(reported, 200, "{status}");
        let tokens = counted["input_tokens"].as_u64().unwrap();
        // Each text is some 450 tokens.
        assert!((1_500..4_000).contains(&tokens), "{tokens}");
        let mut longer = body.clone();
        longer["system"] = "Answer in a word. ".repeat(100).into();
        let (_, more) = count(&gate, MESSAGES, &longer).await;
        assert!(more["input_tokens"].as_u64().unwrap() > tokens + 200, "{more}");
        let (reported, counted) = count(&gate, GEMINI, &request(Wire::Gemini, texts, false)).await;
        assert_eq!((reported, counted["totalTokens"].as_u64()), (200, Some(tokens)));
        assert_eq!(upstream.count(), 3, "the upstream was asked each time");
    }
}

#[tokio::test]
async fn an_estimate_is_of_what_the_model_would_read() {
    let upstream = upstream(404, "").await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let mut body = request(Wire::Anthropic, &long_conversation(), false);
    let whole = count(&gate, MESSAGES, &body).await.1["input_tokens"].as_u64().unwrap();
    assert!(whole > 25_000, "{whole}");
    let answer = client().post(gate.at("/v1/messages")).body(body.to_string()).send();
    assert_eq!(answer.await.unwrap().headers()["x-ctxhost-compaction"], "applied");
    let next = [
        json!({"role": "assistant", "content": "Yes."}),
        json!({"role": "user", "content": "Go on."}),
    ];
    body["messages"].as_array_mut().unwrap().extend(next);
    let left = count(&gate, MESSAGES, &body).await.1["input_tokens"].as_u64().unwrap();
    assert!(left < 20_000, "{left}");
}

#[tokio::test]
async fn what_is_no_lack_of_a_door_is_for_the_client_to_hear() {
    for (status, refusal) in [
        (
            404,
            "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"model: m\"}}",
        ),
        (
            401,
            "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"invalid x-api-key\"}}",
        ),
        (500, "{}"),
        (200, "{\"input_tokens\": 7}"),
    ] {
        let upstream = upstream(status, refusal).await;
        let gate = Gate::before(&upstream.url, KNOWN).await;
        let body = request(Wire::Anthropic, &["Hello.".to_owned()], false);
        let (reported, answer) = count(&gate, MESSAGES, &body).await;
        assert_eq!((reported, answer), (status, serde_json::from_str(refusal).unwrap()));
    }
}

#[tokio::test]
async fn input_tokens_of_the_responses_api_are_counted_as_they_would_be_sent() {
    let upstream = Upstream::start(|seen| {
        let is_count = seen.uri.path().ends_with("input_tokens");
        plain(if is_count { 404 } else { 200 }, "application/json", "{}")
    })
    .await;
    let gate = Gate::before(&upstream.url, KNOWN).await;
    let mut body = request(Wire::Responses, &long_conversation(), false);
    let path = "/v1/responses/input_tokens";
    let counted = count(&gate, path, &body).await.1;
    assert_eq!(counted["object"], "response.input_tokens");
    assert!(counted["input_tokens"].as_u64().unwrap() > 25_000, "{counted}");
    let answer = client().post(gate.at("/v1/responses")).body(body.to_string()).send();
    assert_eq!(answer.await.unwrap().headers()["x-ctxhost-compaction"], "applied");
    let next = [
        json!({ "role": "assistant", "content": "Yes." }),
        json!({ "role": "user", "content": "Go on." }),
    ];
    body["input"].as_array_mut().unwrap().extend(next);
    let left = count(&gate, path, &body).await.1["input_tokens"].as_u64().unwrap();
    assert!(left < 20_000, "{left}");
    let sent = upstream.last().body;
    assert!(sent.len() < body.to_string().len(), "the upstream was asked for all of it");
}
