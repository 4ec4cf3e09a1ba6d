//! Clients of Ollama's own API, whose window is in the request and whose results have no ids.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::stage::{Gate, client};

const WINDOW_TOKENS: u64 = 20_000;

fn server() -> ScriptedServer {
    let steps = Steps::new([vec![Step::say("Here you are.")]]);
    ScriptedServer::start(Wire::Ollama, Model::new(WINDOW_TOKENS)).script(steps)
}

async fn ask(gate: &Gate, body: &Value) -> reqwest::Response {
    client().post(gate.at("/api/chat")).body(body.to_string()).send().await.unwrap()
}

fn question(page: usize) -> Value {
    json!({ "role": "user", "content": format!("What is on page {page}?") })
}

/// Rounds of a question, two calls, their results and an answer, and the next question.
fn rounds(count: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "system", "content": "You are brief." })];
    for round in 0..count {
        let call =
            |tool: &str| json!({ "function": { "name": tool, "arguments": { "page": round } } });
        let result = |tool: &str| {
            let text = format!("{tool} {round}: {}", "a line of the ledger. ".repeat(60));
            json!({ "role": "tool", "tool_name": tool, "content": text })
        };
        messages.extend([
            question(round),
            json!({ "role": "assistant", "content": "", "tool_calls": [call("read"), call("list")] }),
            // In the other order than the calls.
            result("list"),
            result("read"),
            json!({ "role": "assistant", "content": format!("Page {round} has a sum.") }),
        ]);
    }
    messages.push(question(count));
    messages
}

#[tokio::test]
async fn a_conversation_is_kept_inside_the_window_that_the_client_requests() {
    let server = server();
    let gate = Gate::before(&server.url(), "").await;
    let mut session = None;
    for count in 1..40 {
        let body = json!({ "model": "qwen3:8b", "options": { "num_ctx": WINDOW_TOKENS }, "messages": rounds(count) });
        let answer = ask(&gate, &body).await;
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-ctxhost-engine"), "legacy", "round {count}");
        let same = session.get_or_insert_with(|| header("x-ctxhost-session"));
        assert_eq!(*same, header("x-ctxhost-session"), "round {count}");
        let lines = answer.text().await.unwrap();
        assert!(lines.lines().last().unwrap().contains("\"done\":true"), "{lines}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 39);
    // The server cuts what does not fit, and answers all the same.
    assert!(requests.iter().all(|request| request.answered == Answered::Answer { calls: 0 }));
    assert!(requests.iter().all(|request| request.prompt_tokens < WINDOW_TOKENS));
    assert_eq!(server.broken(), []);
    let sent = requests.last().unwrap().body["messages"].as_array().unwrap().len();
    assert!(sent < rounds(39).len() / 2, "{sent} messages");
}

#[tokio::test]
async fn other_requests_of_its_api_go_to_the_same_server() {
    let server = server();
    let upstreams = format!("[gateway.upstreams]\nollama = \"{}\"\n", server.url());
    // Every other dialect has an address without a server.
    let gate = Gate::before("http://127.0.0.1:9", &upstreams).await;
    let body = json!({ "model": "qwen3:8b", "stream": false, "options": { "num_ctx": WINDOW_TOKENS }, "messages": [{ "role": "user", "content": "hi" }] });
    let answer: Value = ask(&gate, &body).await.json().await.unwrap();
    assert_eq!(answer["message"]["content"], "Here you are.");
}
