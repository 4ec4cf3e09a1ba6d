//! Thinking bound to earlier messages: removed by a compaction, and after a refusal. Removed thinking takes no room.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Seen, Step, Steps};
use serde_json::{Value, json};

use crate::overflow::key;
use crate::stage::{Gate, client};

const WINDOW: u64 = 20_000;

/// A client whose model thinks, with one tool.
struct Thinker {
    messages: Vec<Value>,
    client: reqwest::Client,
    /// The size that the gateway reports of each request.
    sizes: Vec<u64>,
}

impl Thinker {
    fn new() -> Thinker {
        Thinker { messages: Vec::new(), client: client(), sizes: Vec::new() }
    }

    fn say(&mut self, words: String) {
        self.messages.push(json!({ "role": "user", "content": words }));
    }

    /// The results of the calls of the last answer; whether there were any.
    fn use_tools(&mut self, text: &str) -> bool {
        let Some(answer) = self.messages.last() else { return false };
        let calls = answer["content"].as_array().into_iter().flatten();
        let calls = calls.filter(|block| block["type"] == "tool_use");
        let results: Vec<Value> = calls
            .map(
                |call| json!({ "type": "tool_result", "tool_use_id": call["id"], "content": text }),
            )
            .collect();
        let has_any = !results.is_empty();
        if has_any {
            self.messages.push(json!({ "role": "user", "content": results }));
        }
        has_any
    }

    /// Asks, and takes in the answer, which must be one.
    async fn ask(&mut self, gate: &Gate) {
        let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        let body = json!({
            "model": "m",
            "max_tokens": 3_000,
            "thinking": { "type": "enabled", "budget_tokens": 1_024 },
            "tools": [{ "name": "read", "description": "Reads a file.", "input_schema": schema }],
            "messages": self.messages,
        });
        let (name, value) = key(Wire::Anthropic);
        let request = self.client.post(gate.at("/v1/messages")).header(name, value);
        let request = request.header("anthropic-version", "2023-06-01");
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.unwrap();
        let size = answer.headers().get("x-ctxhost-tokens");
        self.sizes.extend(size.and_then(|size| size.to_str().ok()?.parse::<u64>().ok()));
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "after {} messages: {text}", self.messages.len());
        let answer: Value = serde_json::from_str(&text).unwrap();
        self.messages.push(json!({ "role": "assistant", "content": answer["content"] }));
    }

    /// A whole turn: as many rounds of tools as the model likes.
    async fn turn(&mut self, gate: &Gate, words: String, file: &str) {
        self.say(words);
        self.ask(gate).await;
        while self.use_tools(file) {
            self.ask(gate).await;
        }
    }
}

fn server(answers: Vec<Vec<Step>>) -> ScriptedServer {
    let model = Model { binds_thinking: true, ..Model::new(WINDOW) };
    ScriptedServer::start(Wire::Anthropic, model).script(Steps::new(answers))
}

fn believed(window: u64) -> String {
    format!("[models.m]\nwindow_tokens = {window}\n")
}

fn think(n: usize) -> Step {
    Step::think(format!("Let me see, {n}."))
}

/// The answers of turns with so many rounds.
fn round(n: usize, rounds: usize) -> Vec<Step> {
    if n % rounds == rounds - 1 {
        vec![think(n), Step::say(format!("Done, {n}."))]
    } else {
        vec![think(n), Step::call("read", json!({ "path": format!("{n}.rs") }))]
    }
}

fn thoughts(seen: &Seen) -> usize {
    seen.body["messages"].to_string().matches("\"type\":\"thinking\"").count()
}

fn was_refused(seen: &Seen) -> bool {
    seen.answered == Answered::Malformed
}

#[tokio::test]
async fn between_turns_a_compaction_takes_its_thinking_along() {
    // Both ways to a compaction: before the request is sent, and because it was refused as too large.
    for window in [WINDOW, 10 * WINDOW] {
        let answer = |n| vec![think(n), Step::say(format!("Noted, {n}."))];
        let server = server((0..60).map(answer).collect());
        let mut gate = Gate::before(&server.url(), &believed(window)).await;
        let mut thinker = Thinker::new();
        for turn in 0..40 {
            let words = "The parser reads the ledger again. ".repeat(100);
            thinker.turn(&gate, format!("Turn {turn}. {words}"), "").await;
            if turn == 25 {
                gate.end.cancel();
                let Gate { task, state, .. } = gate;
                task.await.unwrap();
                gate = Gate::again(&server.url(), &believed(window), state).await;
            }
        }
        let seen = server.requests();
        assert_eq!(server.broken(), [], "{window}: no thinking was sent that is refused");
        let shortest = seen.iter().skip(10).map(thoughts).min().unwrap();
        let longest = seen.iter().map(thoughts).max().unwrap();
        assert!(shortest == 0 && longest > 5, "{window}: {shortest} to {longest}");
        // What was said since a compaction keeps its thinking for good.
        let kept = seen.windows(2).filter(|two| thoughts(&two[1]) == thoughts(&two[0]) + 1).count();
        assert!(kept * 2 > seen.len(), "{window}: {kept} of {}", seen.len());
    }
}

#[tokio::test]
async fn in_the_middle_of_a_turn_it_is_asked_once_more_without() {
    let server = server((0..120).map(|n| round(n, 6)).collect());
    let gate = Gate::before(&server.url(), &believed(WINDOW)).await;
    let mut thinker = Thinker::new();
    let file = "let value = compute(17);\n".repeat(250);
    for turn in 0..8 {
        thinker.turn(&gate, format!("Look at part {turn}."), &file).await;
    }
    let seen = server.requests();
    let refused = seen.iter().filter(|it| was_refused(it)).count();
    assert_eq!(
        refused, 1,
        "the first compaction within a turn shows that the model binds thinking"
    );
    assert_mended(&seen);
    let shaped = seen.iter().filter(|it| thoughts(it) > 0 && !was_refused(it)).count();
    assert!(shaped * 3 > seen.len(), "{shaped} of {} had thinking", seen.len());
}

/// Models without interleaved thinking think once, before the first call of a turn.
#[tokio::test]
async fn a_loop_whose_first_answer_was_dropped_goes_without_thinking() {
    for engine in ["legacy", "window", "mask", "boundary", "head-tail", "recall", "dag"] {
        let step = |n: usize| match n % 40 {
            0 => round(n, 40),
            39 => vec![Step::say(format!("Done, {n}."))],
            _ => vec![Step::call("read", json!({ "path": format!("{n}.rs") }))],
        };
        let model = Model { binds_thinking: false, ..Model::new(WINDOW) };
        let steps = Steps::new((0..120).map(step));
        let server = ScriptedServer::start(Wire::Anthropic, model).script(steps);
        let slot = format!("[plugins.slots]\ncontext_engine = \"{engine}\"\n");
        let gate = Gate::before(&server.url(), &format!("{slot}{}", believed(WINDOW))).await;
        let mut thinker = Thinker::new();
        let file = "let value = compute(17);\n".repeat(250);
        for turn in 0..3 {
            thinker.turn(&gate, format!("Look at part {turn}."), &file).await;
        }
        assert_eq!(server.broken(), [], "{engine}");
        let thinking = server.requests().iter().filter(|it| thoughts(it) > 0).count();
        assert!(thinking > 6, "{engine}: {thinking} requests had thinking");
    }
}

/// Whatever is refused is refused for its thinking, and taken without at once.
fn assert_mended(seen: &[Seen]) {
    for two in seen.windows(2).filter(|two| was_refused(&two[0])) {
        assert!(two[0].broken.iter().all(|it| it.rule == "A-21"), "{:?}", two[0].broken);
        assert!(matches!(two[1].answered, Answered::Answer { .. }), "{:?}", two[1]);
        assert_eq!(thoughts(&two[1]), 0);
    }
}

#[tokio::test]
async fn an_engine_that_changes_each_request_is_taken_all_the_same() {
    for engine in ["window", "mask", "mask+legacy"] {
        let server = server((0..120).map(|n| round(n, 3)).collect());
        let engines: Vec<&str> = engine.split('+').collect();
        let slot = format!("[plugins.slots]\ncontext_engine = {engines:?}\n");
        let gate = Gate::before(&server.url(), &format!("{slot}{}", believed(WINDOW))).await;
        let mut thinker = Thinker::new();
        let file = "let value = compute(17);\n".repeat(100);
        for turn in 0..16 {
            thinker.turn(&gate, format!("Look at part {turn}."), &file).await;
        }
        let seen = server.requests();
        assert_mended(&seen);
        let refused = seen.iter().filter(|it| was_refused(it)).count();
        assert!(refused * 3 < seen.len(), "{engine}: {refused} of {}", seen.len());
    }
}

#[tokio::test]
async fn thinking_that_is_not_sent_takes_no_room() {
    for engine in ["mask", "window", "head-tail", "recall"] {
        let thought = "I compare the parser with the ledger before I answer. ".repeat(30);
        let step = |n: usize| match n % 4 {
            3 => vec![Step::think(thought.clone()), Step::say(format!("Done, {n}."))],
            _ => vec![
                Step::think(thought.clone()),
                Step::call("read", json!({ "path": format!("{n}.rs") })),
            ],
        };
        let server = ScriptedServer::start(Wire::Anthropic, Model::new(WINDOW))
            .script(Steps::new((0..200).map(step)));
        let slot = format!("[plugins.slots]\ncontext_engine = \"{engine}\"\n");
        let config = format!("{slot}{}", believed(WINDOW));
        let mut gate = Gate::before(&server.url(), &config).await;
        let mut thinker = Thinker::new();
        let file = "let value = compute(17);\n".repeat(40);
        for turn in 0..30 {
            thinker.turn(&gate, format!("Look at part {turn}."), &file).await;
            if turn == 20 {
                gate.end.cancel();
                let Gate { task, state, .. } = gate;
                task.await.unwrap();
                gate = Gate::again(&server.url(), &config, state).await;
            }
        }
        assert_eq!(server.broken(), [], "{engine}");
        let seen = server.requests();
        // The whole history is far larger than the window from here on.
        let late = seen.iter().zip(&thinker.sizes).skip(60);
        let mut shares = Vec::new();
        for (request, size) in late {
            let sent = request.prompt_tokens;
            assert!(*size < sent * 2, "{engine}: {size} were reported and {sent} sent");
            shares.push(sent * 100 / WINDOW);
        }
        shares.sort_unstable();
        let median = shares[shares.len() / 2];
        assert!(median >= 40, "{engine}: {median} % of the window were used");
    }
}
