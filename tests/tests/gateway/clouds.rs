//! Claude behind Vertex and Bedrock: Anthropic's bodies at other paths, with the model in the path.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::stage::{Gate, client};

const WINDOW_TOKENS: u64 = 20_000;
const VERTEX: &str = "/v1/projects/p/locations/global/publishers/anthropic/models";
const BEDROCK: &str = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke";

struct Cloud {
    server: ScriptedServer,
    gate: Gate,
}

impl Cloud {
    /// A gateway with a server at the upstream of `dialect` only.
    async fn new(dialect: &str) -> Cloud {
        let steps = Steps::new([vec![Step::say("Here you are.")]]);
        let server =
            ScriptedServer::start(Wire::Anthropic, Model::new(WINDOW_TOKENS)).script(steps);
        let config = format!(
            "[gateway.upstreams]\n{dialect} = \"{}\"\n[model]\ndefault_window_tokens = {WINDOW_TOKENS}\n",
            server.url()
        );
        let gate = Gate::before("http://127.0.0.1:9", &config).await;
        Cloud { server, gate }
    }

    async fn ask(&self, path: &str, authorization: &str, body: &Value) -> reqwest::Response {
        let request = client().post(self.gate.at(path)).body(body.to_string());
        request.header("authorization", authorization).send().await.unwrap()
    }
}

/// A body as the clouds take it: a version instead of a model.
fn body(questions: usize) -> Value {
    let text =
        |number: usize| format!("Question {number}: {}", "what is in the ledger? ".repeat(90));
    let turns = (1..questions)
        .flat_map(|number| [("user", text(number)), ("assistant", format!("Answer {number}."))]);
    let turns = turns.chain([("user", text(questions))]);
    let messages: Vec<Value> =
        turns.map(|(role, text)| json!({ "role": role, "content": text })).collect();
    json!({ "anthropic_version": "vertex-2023-10-16", "max_tokens": 500, "messages": messages })
}

async fn check(cloud: Cloud, path: &str, is_stream: bool) {
    let mut session = None;
    for questions in 1..60 {
        let mut body = body(questions);
        if is_stream {
            body["stream"] = json!(true);
        }
        let answer = cloud.ask(path, "Bearer key", &body).await;
        assert_eq!(answer.status(), 200, "question {questions}");
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-ctxhost-engine"), "legacy");
        let same = session.get_or_insert_with(|| header("x-ctxhost-session"));
        assert_eq!(*same, header("x-ctxhost-session"), "question {questions}");
        let end = if is_stream { "message_stop" } else { "end_turn" };
        assert!(answer.text().await.unwrap().contains(end), "question {questions}");
    }
    assert_eq!(cloud.server.broken(), []);
    let requests = cloud.server.requests();
    assert!(requests.iter().all(|request| request.prompt_tokens < WINDOW_TOKENS));
    assert!(requests.last().unwrap().body["messages"].as_array().unwrap().len() < 60);
}

#[tokio::test]
async fn a_conversation_with_vertex_is_kept_inside_the_window() {
    let model = "claude-sonnet-4-5@20250929";
    let cloud = Cloud::new("gemini").await;
    check(cloud, &format!("{VERTEX}/{model}:streamRawPredict"), true).await;
    let cloud = Cloud::new("gemini").await;
    check(cloud, &format!("{VERTEX}/{model}:rawPredict"), false).await;
}

#[tokio::test]
async fn tokens_are_counted_by_vertex() {
    let cloud = Cloud::new("gemini").await;
    let mut body = body(3);
    body["model"] = json!("claude-sonnet-4-5@20250929");
    body.as_object_mut().unwrap().remove("max_tokens");
    let answer = cloud.ask(&format!("{VERTEX}/count-tokens:rawPredict"), "Bearer key", &body).await;
    assert!(answer.json::<Value>().await.unwrap()["input_tokens"].as_u64() > Some(1_000));
}

#[tokio::test]
async fn a_conversation_with_bedrock_is_kept_inside_the_window() {
    check(Cloud::new("anthropic").await, BEDROCK, false).await;
}

#[tokio::test]
async fn a_signed_request_is_forwarded_as_it_is() {
    let cloud = Cloud::new("anthropic").await;
    let body = body(40);
    let answer = cloud.ask(BEDROCK, "AWS4-HMAC-SHA256 Credential=x", &body).await;
    assert_eq!(answer.headers()["x-ctxhost-engine"], "none");
    assert_eq!(*cloud.server.requests().first().unwrap().body, body);
}
