//! Conversations that their client compacts again and again through the Responses API.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::stage::{Gate, Upstream, client, plain};

const WINDOW_TOKENS: usize = 24_000;
const TASK: &str = "TASK: mend the ledger, and leave its first page as it is.";

fn config(engine: &str) -> String {
    format!(
        "[plugins.slots]\ncontext_engine = \"{engine}\"\n[models.m]\nwindow_tokens = {WINDOW_TOKENS}\n"
    )
}

async fn upstream() -> Upstream {
    Upstream::start(|_| plain(200, "application/json", "{}")).await
}

/// A client that compacts after every second turn, as the Agents SDK and Codex do.
struct Compactor {
    url: String,
    input: Vec<Value>,
    sessions: HashSet<String>,
    /// The text of each compaction item.
    items: Vec<String>,
    turns: usize,
}

impl Compactor {
    fn new(gate: &Gate) -> Compactor {
        let (input, sessions, items) = (Vec::new(), HashSet::new(), Vec::new());
        Compactor { url: gate.url.clone(), input, sessions, items, turns: 0 }
    }

    async fn post(&mut self, path: &str, input: &[Value]) -> Value {
        let body = json!({ "model": "m", "store": false, "input": input });
        let request = client().post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["x-ctxhost-session"].to_str().unwrap();
        self.sessions.insert(session.to_owned());
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }

    /// A question, three calls with results of 7,000 characters, and an answer.
    async fn take_turn(&mut self) {
        let turn = self.turns;
        self.turns += 1;
        let question = if turn == 0 { TASK.to_owned() } else { format!("go on {turn}") };
        self.input.push(json!({ "role": "user", "content": question }));
        self.send().await;
        for part in 3 * turn..3 * turn + 3 {
            let call_id = format!("call_{part}");
            self.input.push(json!({ "type": "function_call", "call_id": call_id, "name": "read", "arguments": json!({ "part": part }).to_string() }));
            let text = format!("part {part}: {}", "The quick brown fox jumps. ".repeat(260));
            self.input.push(
                json!({ "type": "function_call_output", "call_id": call_id, "output": text }),
            );
        }
        self.send().await;
        let text = format!("ANSWER {turn}");
        self.input.push(json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }));
    }

    async fn send(&mut self) {
        let input = self.input.clone();
        self.post("/v1/responses", &input).await;
    }

    async fn compact(&mut self, with_trigger: bool) {
        let mut input = self.input.clone();
        let path = if with_trigger {
            input.push(json!({ "type": "compaction_trigger" }));
            "/v1/responses"
        } else {
            "/v1/responses/compact"
        };
        let answer = self.post(path, &input).await;
        self.input = answer["output"].as_array().unwrap().clone();
        let [item] = &self.input[..] else { panic!("{answer}") };
        self.items.push(item["encrypted_content"].as_str().unwrap().to_owned());
    }
}

async fn check_compactions(engine: &str, with_trigger: bool) {
    let upstream = upstream().await;
    let gate = Gate::before(&upstream.url, &config(engine)).await;
    let mut client = Compactor::new(&gate);
    for turn in 0..12 {
        client.take_turn().await;
        if turn % 2 == 1 {
            client.compact(with_trigger).await;
        }
    }
    client.send().await;
    let lengths: Vec<usize> = client.items.iter().map(String::len).collect();
    assert_eq!(client.sessions.len(), 1, "{engine}: {:?}, {lengths:?}", client.sessions);
    let first = *lengths.iter().take(3).max().unwrap();
    let last = *lengths.iter().rev().take(3).max().unwrap();
    // Half of the window, at some four characters a token.
    assert!(last < 2 * WINDOW_TOKENS, "{engine}: {lengths:?}");
    assert!(last < first + first / 4, "{engine}: {lengths:?}");
    for (number, item) in client.items.iter().enumerate() {
        let turn = 2 * number + 1;
        let newest = [TASK, &format!("go on {turn}"), &format!("ANSWER {turn}")];
        for text in newest {
            assert!(item.contains(text), "{engine}: {text} is not in item {number}: {lengths:?}");
        }
    }
    let sent = upstream.last().body;
    let sent = String::from_utf8_lossy(&sent);
    assert!(sent.contains(TASK) && sent.contains("ANSWER 11"), "{engine}");
    assert!(!sent.contains("ctxhost-summary-1"), "{engine}: the item was sent to the provider");
}

#[tokio::test]
async fn repeated_compactions_are_one_conversation_of_bounded_size() {
    for with_trigger in [false, true] {
        check_compactions("legacy", with_trigger).await;
    }
}

#[tokio::test]
async fn repeated_compactions_are_bounded_with_each_engine() {
    for engine in ["window", "mask", "boundary", "head-tail", "recall", "dag"] {
        check_compactions(engine, false).await;
    }
}

/// Restarts the gateway, without its sessions if so.
async fn restart(gate: Gate, upstream: &Upstream, without_sessions: bool) -> Gate {
    let Gate { end, task, state, .. } = gate;
    end.cancel();
    task.await.unwrap();
    if without_sessions {
        std::fs::remove_dir_all(state.path().join("gateway/sessions")).unwrap();
    }
    Gate::again(&upstream.url, &config("legacy"), state).await
}

#[tokio::test]
async fn a_compaction_is_continued_after_a_restart_and_without_its_session() {
    for without_sessions in [false, true] {
        let upstream = upstream().await;
        let mut gate = Gate::before(&upstream.url, &config("legacy")).await;
        let mut client = Compactor::new(&gate);
        for turn in 0..12 {
            client.take_turn().await;
            if turn % 2 == 1 {
                client.compact(false).await;
                gate = restart(gate, &upstream, without_sessions).await;
                client.url.clone_from(&gate.url);
            }
        }
        client.send().await;
        let lengths: Vec<usize> = client.items.iter().map(String::len).collect();
        assert_eq!(client.sessions.len() > 1, without_sessions, "{:?}", client.sessions);
        assert!(lengths[5] < lengths[0] + lengths[0] / 4, "{lengths:?}");
        let last = client.items.last().unwrap();
        for text in [TASK, "go on 11", "ANSWER 11"] {
            assert!(last.contains(text), "{text}: {lengths:?}");
        }
        drop(gate);
    }
}

#[tokio::test]
async fn two_conversations_that_continue_from_one_compaction_are_not_mixed() {
    let upstream = upstream().await;
    let gate = Gate::before(&upstream.url, &config("legacy")).await;
    let mut one = Compactor::new(&gate);
    for _ in 0..4 {
        one.take_turn().await;
    }
    one.compact(false).await;
    let mut other = Compactor::new(&gate);
    other.input.clone_from(&one.input);
    for (turn, client) in [(100, &mut one), (200, &mut other)] {
        client.turns = turn;
        client.take_turn().await;
        client.take_turn().await;
        client.compact(false).await;
        client.take_turn().await;
    }
    one.take_turn().await;
    assert!(!one.items.last().unwrap().contains("go on 20"));
    assert!(!other.items.last().unwrap().contains("go on 10"));
    assert!(!String::from_utf8_lossy(&upstream.last().body).contains("go on 20"));
    assert_eq!((one.sessions.len(), other.sessions.len()), (1, 1));
    assert_ne!(one.sessions, other.sessions);
}
