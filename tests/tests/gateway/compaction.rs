//! Compactions that clients request from OpenAI's Responses API, made and read by the gateway.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::stage::{Gate, Upstream, client, plain};

const CONFIG: &str = "[models.m]\nwindow_tokens = 60000\n";

/// A conversation about ledgers, some 47,000 tokens of it.
fn input() -> Vec<Value> {
    let message = |role: &str, kind: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
    let turn = |n: usize| {
        let asked =
            format!("Part {n}. {}", "The parser reads the ledger, line by line. ".repeat(90));
        [
            message("user", "input_text", &asked),
            message("assistant", "output_text", &format!("Ledger {n} is read.")),
        ]
    };
    (0..48).flat_map(turn).collect()
}

fn body(input: &[Value], is_stream: bool) -> String {
    json!({
        "model": "m", "input": input, "stream": is_stream, "store": false,
        "include": ["reasoning.encrypted_content"],
    })
    .to_string()
}

async fn post(gate: &Gate, path: &str, body: String) -> reqwest::Response {
    let request = client().post(gate.at(path)).header("authorization", "Bearer k");
    let request =
        request.header("x-codex-window-id", "thread-1:0").header("session-id", "thread-1");
    let request = request.header("content-type", "application/json");
    let answer = request.body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// The items of an answer, be it one of JSON or a stream.
fn output(answer: &str) -> Vec<Value> {
    if let Ok(whole) = serde_json::from_str::<Value>(answer) {
        return whole["output"].as_array().unwrap().clone();
    }
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first().zip(kinds.last()), Some((&"response.created", &"response.completed")));
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    done.map(|event| event["item"].clone()).collect()
}

#[tokio::test]
async fn a_compaction_is_made_here_and_read_by_the_model_when_it_comes_back() {
    let server = ScriptedServer::start(Wire::Responses, Model::new(60_000));
    let server = server.script(Steps::new([vec![Step::say("Here you are.")]]));
    let gate = Gate::before(&server.url(), CONFIG).await;
    let mut triggered = input();
    triggered.push(json!({ "type": "compaction_trigger" }));
    let mut items = Vec::new();
    for (path, body) in [
        ("/v1/responses", body(&triggered, true)),
        ("/v1/responses", body(&triggered, false)),
        ("/v1/responses/compact", json!({ "model": "m", "input": input() }).to_string()),
    ] {
        let answer = post(&gate, path, body).await;
        assert_eq!(answer.headers()["x-ctxhost-engine"], "legacy", "{path}");
        let output = output(&answer.text().await.unwrap());
        let [item] = &output[..] else { panic!("{path}: {output:?}") };
        assert_eq!(item["type"], "compaction");
        items.push(item.clone());
    }
    assert!(server.requests().is_empty(), "the provider was asked to compact");
    // The same words are compacted once, however they are asked for.
    assert!(items.windows(2).all(|pair| pair[0] == pair[1]), "{items:?}");
    let sealed = items[0]["encrypted_content"].as_str().unwrap();
    assert!(
        sealed.contains("Ledger 47 is read.") && sealed.len() * 3 < body(&input(), true).len() * 2
    );

    let Gate { end, task, state, .. } = gate;
    end.cancel();
    task.await.unwrap();
    let gate = Gate::again(&server.url(), CONFIG, state).await;
    let asked = json!({ "type": "message", "role": "user",
        "content": [{ "type": "input_text", "text": "Which one was last?" }] });
    let mut forged = items[0].clone();
    forged["encrypted_content"] = sealed.replace("Ledger 47", "Ledger 48").into();
    post(&gate, "/v1/responses", body(&[items[0].clone(), forged, asked.clone()], false)).await;
    assert_eq!(server.broken(), []);
    let requests = server.requests();
    let [seen] = &requests[..] else { panic!("{} requests", requests.len()) };
    let input = seen.body["input"].as_array().unwrap();
    assert_eq!(input.last(), Some(&asked));
    let text = input[0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(input[0]["role"], "user");
    assert!(text.contains("<summary") && text.ends_with("</summary>"), "{text}");
    // What was kept comes as the messages that it was.
    let messages = input[1..].to_vec();
    assert!(messages.iter().all(|message| triggered.contains(message) || *message == asked));
    assert!(messages.contains(&triggered[0]) && messages.contains(&triggered[95]));
    assert!(!seen.body.to_string().contains("ctxhost-summary-1"));
}

#[tokio::test]
async fn compactions_of_others_pass_untouched() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, CONFIG).await;
    let items = [
        json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo" }),
        json!({ "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": "ctxhost-summary-1. is how ours begin" }] }),
    ];
    let sent = body(&items, false);
    post(&gate, "/v1/responses", sent.clone()).await;
    assert_eq!(upstream.last().body, sent);
}

/// The text of a compaction of so many parts, each some 1,000 tokens, in a window of 60,000.
async fn compacted(parts: usize, settings: &str) -> String {
    let server = ScriptedServer::start(Wire::Responses, Model::new(60_000));
    let gate = Gate::before(&server.url(), &format!("{CONFIG}[gateway]\n{settings}\n")).await;
    let body = json!({ "model": "m", "input": input()[..2 * parts] }).to_string();
    let answer = post(&gate, "/v1/responses/compact", body).await.text().await.unwrap();
    assert_eq!(server.requests().len(), 0, "nobody upstream is asked");
    let items = output(&answer);
    items[0]["encrypted_content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn how_large_a_compaction_may_be_is_a_setting() {
    let kept = |text: &str| (0..48).filter(|n| text.contains(&format!("Part {n}. "))).count();
    let (usual, whole) =
        (compacted(24, "").await, compacted(24, "compacted_min_share = 0.9").await);
    assert_eq!(kept(&whole), 24, "what is small enough is told word for word");
    assert!(usual.len() < whole.len(), "{} of {} bytes", usual.len(), whole.len());
    let (usual, small) =
        (compacted(48, "").await, compacted(48, "compacted_max_share = 0.1").await);
    assert!(small.len() < usual.len(), "{} of {} bytes", small.len(), usual.len());
    // At some four characters a token.
    assert!(small.len() < 4 * 6_000, "{} bytes", small.len());
}
