//! Instructions within the history that their client changes after they have left view.

use ctxhost_tests::rules::Wire;
use serde_json::{Value, json};

use crate::overflow::ask;
use crate::stage::{Gate, Upstream, plain};

const DONE: &str = r#"{"choices":[{"message":{"role":"assistant","content":"Done."}}]}"#;

/// A conversation of many turns whose seventh message is an instruction of the client.
fn conversation(turns: usize, state: &str) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "You deploy."})];
    for turn in 0..=turns {
        let words =
            |who: &str| format!("{who} {turn}: {}", "the server needs a merge of ".repeat(15));
        messages.push(json!({"role": "user", "content": words("question")}));
        messages.push(json!({"role": "assistant", "content": words("answer")}));
    }
    // The newest question has no answer yet.
    messages.pop();
    let state = format!("The target is always host-{state}.");
    messages.insert(7, json!({"role": "system", "content": state}));
    json!({"model": "m", "max_tokens": 500, "messages": messages})
}

async fn before(engine: &str) -> (Upstream, Gate) {
    let upstream = Upstream::start(|_| plain(200, "application/json", DONE)).await;
    let config = format!(
        "[plugins.slots]\ncontext_engine = \"{engine}\"\n[models.m]\nwindow_tokens = 10000\n"
    );
    let gate = Gate::before(&upstream.url, &config).await;
    (upstream, gate)
}

/// What the upstream got, and whether a compaction was made for it.
async fn sent(gate: &Gate, upstream: &Upstream, body: &Value) -> (String, bool) {
    let answer = ask(gate, Wire::OpenAiChat, body, false).await;
    assert_eq!(answer.status(), 200);
    let compaction = answer.headers().get("x-ctxhost-compaction").cloned();
    let is_compacted = compaction.is_some_and(|value| value == "applied");
    (String::from_utf8_lossy(&upstream.last().body).into_owned(), is_compacted)
}

#[tokio::test]
async fn an_instruction_that_changes_out_of_view_is_sent_as_it_now_is() {
    for engine in ["legacy", "boundary", "window", "mask", "head-tail"] {
        let (upstream, gate) = before(engine).await;
        for turns in (8..64).step_by(4) {
            sent(&gate, &upstream, &conversation(turns, "one")).await;
        }
        let mut compactions = Vec::new();
        let states = ["one", "one", "one", "one", "two", "three", "four", "four"];
        for (number, state) in states.iter().enumerate() {
            let body = conversation(64 + number, state);
            let (text, is_compacted) = sent(&gate, &upstream, &body).await;
            if *state != "one" {
                assert!(text.contains(&format!("host-{state}.")), "{engine} {state}: {text}");
            }
            compactions.push(is_compacted);
        }
        let count = |all: &[bool]| all.iter().filter(|is_compacted| **is_compacted).count();
        let (before, after) = compactions.split_at(4);
        assert!(count(after) <= count(before) + 1, "{engine}: {compactions:?}");
    }
}

#[tokio::test]
async fn an_instruction_that_changes_in_view_is_sent_once() {
    let (upstream, gate) = before("window").await;
    for (number, state) in ["one", "two", "three"].iter().enumerate() {
        let body = conversation(5 + number, state);
        let (text, is_compacted) = sent(&gate, &upstream, &body).await;
        assert_eq!((text, is_compacted), (body.to_string(), false), "{state}");
    }
}
