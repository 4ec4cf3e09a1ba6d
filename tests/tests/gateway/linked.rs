//! Items that name each other in several messages: they are sent together or not at all.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::stage::{Gate, Upstream, client, plain};

/// The bundled engines.
pub(crate) const ENGINES: [&str; 7] =
    ["legacy", "mask", "window", "head-tail", "boundary", "recall", "dag"];

/// Sends the history after each question and each result; the bodies that the model gets.
pub(crate) async fn bodies(
    engine: &str,
    path: &str,
    history: &[Value],
    is_question: impl Fn(&Value) -> bool,
    body: impl Fn(&[Value]) -> Value,
) -> Vec<Value> {
    let config = format!(
        "[plugins.slots]\ncontext_engine = \"{engine}\"\n[models.m]\nwindow_tokens = 20000\n"
    );
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, &config).await;
    for end in (1..=history.len()).filter(|end| is_question(&history[end - 1])) {
        let request = client().post(gate.at(path)).header("content-type", "application/json");
        let request = request.header("authorization", "Bearer k");
        let answer = request.body(body(&history[..end]).to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{engine}, {end} items");
    }
    let seen = upstream.seen.lock().unwrap();
    seen.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect()
}

/// A text of 60 times these words.
pub(crate) fn text(words: &str, number: usize) -> String {
    format!("Part {number}. {}", words.repeat(60))
}

/// Turns in which code of the provider calls a tool of the client, round by round.
fn programmatic_calls() -> Vec<Value> {
    let message = |role: &str, content: Value| json!({ "role": role, "content": content });
    let mut history = Vec::new();
    for turn in 0..16 {
        let code = format!("srvtoolu_{turn}");
        history.push(message("user", text("Read the ledger, line by line. ", turn).into()));
        let mut content = vec![
            json!({ "type": "thinking", "thinking": "hm", "signature": format!("sig{turn}") }),
            json!({ "type": "server_tool_use", "id": code, "name": "code_execution", "input": {} }),
        ];
        for round in 0..3 {
            let id = format!("toolu_{turn}_{round}");
            let caller = json!({ "type": "code_execution_20250825", "tool_id": code });
            content.push(json!({ "type": "tool_use", "id": id, "name": "read", "input": {}, "caller": caller }));
            history.push(message("assistant", content.into()));
            let result = text("A line of the ledger. ", round);
            history.push(message(
                "user",
                json!([{ "type": "tool_result", "tool_use_id": id, "content": result }]),
            ));
            content = Vec::new();
        }
        let output = json!({ "type": "code_execution_result", "stdout": "7", "stderr": "", "return_code": 0, "content": [] });
        let output =
            json!({ "type": "code_execution_tool_result", "tool_use_id": code, "content": output });
        history
            .push(message("assistant", json!([output, { "type": "text", "text": "It is read." }])));
    }
    history
}

/// Turns in which the user approves a call of an MCP server.
fn approvals() -> Vec<Value> {
    let mut history = Vec::new();
    for turn in 0..24 {
        let (request, question) =
            (format!("mcpr_{turn}"), text("Read the ledger, line by line. ", turn));
        let reasoning = |n: usize| json!({ "type": "reasoning", "id": format!("rs_{turn}_{n}"), "summary": [], "encrypted_content": "gAAA" });
        history.extend([
            json!({ "role": "user", "content": question }),
            reasoning(0),
            json!({ "type": "mcp_approval_request", "id": request, "server_label": "s", "name": "read", "arguments": "{}" }),
            json!({ "type": "mcp_approval_response", "approval_request_id": request, "approve": true }),
            reasoning(1),
            json!({ "type": "mcp_call", "id": format!("mcp_{turn}"), "server_label": "s", "name": "read", "arguments": "{}",
                "output": text("A line of the ledger. ", turn), "approval_request_id": request }),
            json!({ "type": "message", "id": format!("msg_{turn}"), "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": "It is read.", "annotations": [] }] }),
        ]);
    }
    history
}

/// The ids that a body names without defining them earlier, and those defined without what must follow.
fn torn(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().or(body["input"].as_array()).unwrap();
    let blocks = messages.iter().flat_map(|message| match &message["content"] {
        Value::Array(blocks) if message.get("type").is_none() => blocks.iter().collect(),
        _ => vec![message],
    });
    let (mut defined, mut named, mut torn) = (HashSet::new(), HashSet::new(), Vec::new());
    for block in blocks {
        let kind = block["type"].as_str().unwrap_or_default();
        let id = |field: &Value| field.as_str().map(str::to_owned);
        if kind.ends_with("tool_use") || kind == "mcp_approval_request" {
            defined.extend(id(&block["id"]));
        }
        let names =
            [&block["tool_use_id"], &block["caller"]["tool_id"], &block["approval_request_id"]];
        for name in names.into_iter().filter_map(id) {
            if !defined.contains(&name) {
                torn.push(format!("{kind} {name} names nothing"));
            }
            if !kind.ends_with("tool_use") {
                named.insert(name);
            }
        }
    }
    let last = messages.last().unwrap();
    let is_live = |id: &&String| last.to_string().contains(&id.replace("srvtoolu", "toolu"));
    torn.extend(
        defined.difference(&named).filter(|id| !is_live(id)).map(|id| format!("{id} has no end")),
    );
    torn
}

#[tokio::test]
async fn what_a_tool_of_the_provider_calls_and_answers_stays_with_its_use() {
    let history = programmatic_calls();
    for engine in ENGINES {
        let is_question = |message: &Value| message["role"] == "user";
        let body =
            |messages: &[Value]| json!({ "model": "m", "max_tokens": 1_000, "messages": messages });
        let bodies = bodies(engine, "/v1/messages", &history, is_question, body).await;
        for body in &bodies {
            assert_eq!(
                torn(body),
                [""; 0],
                "{engine}: {} messages",
                body["messages"].as_array().unwrap().len()
            );
        }
        let (last, all) = (bodies.last().unwrap().to_string(), json!(history).to_string());
        assert!(last.len() < all.len() * 3 / 4, "{engine}: {} of {} bytes", last.len(), all.len());
    }
}

#[tokio::test]
async fn an_approval_stays_with_its_request_and_the_reasoning_before_it() {
    let history = approvals();
    for engine in ENGINES {
        let is_question =
            |item: &Value| item["role"] == "user" || item["type"] == "mcp_approval_response";
        let body = |input: &[Value]| json!({ "model": "m", "store": false, "input": input });
        let bodies = bodies(engine, "/v1/responses", &history, is_question, body).await;
        for body in &bodies {
            let input = body["input"].as_array().unwrap();
            assert_eq!(torn(body), [""; 0], "{engine}: {} items", input.len());
            for (before, item) in input.iter().zip(input.iter().skip(1)) {
                if item["type"] == "mcp_approval_request" || item["type"] == "mcp_call" {
                    assert_eq!(before["type"], "reasoning", "{engine}: {item}");
                }
            }
        }
        let last = bodies.last().unwrap()["input"].as_array().unwrap();
        assert!(last.len() + 4 < history.len(), "{engine} dropped nothing");
    }
}
