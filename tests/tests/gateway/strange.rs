//! Malformed bodies: conversations with parts changed, removed or doubled.

use std::sync::atomic::{AtomicUsize, Ordering};

use ctxhost_tests::rules::Wire;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};

use crate::agent::{Client, WIRES};
use crate::stage::{Gate, Upstream, client, plain};

/// What is done to one place of a body.
#[derive(Clone, Debug)]
enum Change {
    Set(Value),
    TakeAway,
    /// Once more behind itself, where it stands in a list.
    Double,
    /// In the place of another one.
    CopyTo(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let deep = (0..100).fold(json!("deep"), |inner, _| json!([inner]));
    let odd = vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("tool"),
        json!("function_call_output"),
        json!([]),
        json!({}),
        json!([[]]),
        json!({ "type": "tool_result" }),
        json!({ "type": "text", "text": 7 }),
        json!([{ "type": "thinking" }]),
        json!({ "functionResponse": { "name": null } }),
        json!("\u{0}\u{1f525}\u{202e}"),
        json!("x".repeat(100_000)),
        deep,
    ];
    prop_oneof![
        4 => prop::sample::select(odd).prop_map(Change::Set),
        2 => Just(Change::TakeAway),
        2 => Just(Change::Double),
        2 => any::<Index>().prop_map(Change::CopyTo),
    ]
}

/// The places of a value, as pointers; the whole is the first.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{n}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

fn changed(mut body: Value, changes: &[(Index, Change)]) -> Value {
    for (index, change) in changes {
        let mut all = Vec::new();
        places(&body, "", &mut all);
        let place: &String = index.get(&all);
        match change {
            Change::Set(value) => *body.pointer_mut(place).unwrap() = value.clone(),
            Change::CopyTo(to) => {
                let to: &String = to.get(&all);
                let copy = body.pointer(place).unwrap().clone();
                *body.pointer_mut(to).unwrap() = copy;
            }
            Change::TakeAway | Change::Double => {
                let Some((parent, name)) = place.rsplit_once('/') else { continue };
                match body.pointer_mut(parent).unwrap() {
                    Value::Array(items) => {
                        let at: usize = name.parse().unwrap();
                        let item = items.remove(at);
                        if matches!(change, Change::Double) {
                            items.splice(at..at, [item.clone(), item]);
                        }
                    }
                    Value::Object(fields) if matches!(change, Change::TakeAway) => {
                        fields.remove(name);
                    }
                    _ => {}
                }
            }
        }
    }
    body
}

/// A conversation: one that fits, or one that an engine has to act on.
fn conversation(wire: Wire, is_long: bool) -> Client {
    let mut client = Client::new(wire);
    for turn in 0..4 {
        client.say(&format!("Please look at file {turn}."));
        let lines = if is_long { 900 } else { 3 };
        client.read(&[format!("let value = compute({turn});\n").repeat(lines), "none".into()]);
        client.answer("It computes.");
    }
    client.say("And then?");
    client
}

/// All doors at which a body of this dialect may knock.
fn doors(wire: Wire) -> Vec<&'static str> {
    match wire {
        Wire::Anthropic => vec!["/v1/messages", "/v1/messages/count_tokens"],
        Wire::OpenAiChat => vec!["/v1/chat/completions"],
        Wire::Gemini => vec![
            "/v1beta/models/gemini-2.5-flash:generateContent",
            "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
            "/v1beta/models/gemini-2.5-flash:countTokens",
        ],
        Wire::Ollama => vec!["/api/chat"],
        _ => vec!["/v1/responses", "/v1/responses/compact"],
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics of this process, which a server could hide.
fn count_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
}

#[test]
fn whatever_a_conversation_is_it_is_answered_and_nothing_breaks() {
    count_panics();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let windows = ["claude-sonnet-4-5", "gpt-5", "gemini-2.5-flash"]
        .map(|model| format!("[models.\"{model}\"]\nwindow_tokens = 20000\n"));
    let (upstream, gate) = runtime.block_on(async {
        let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
        let gate = Gate::before(&upstream.url, &windows.concat()).await;
        (upstream, gate)
    });
    let client = client();
    let post = |door: &str, body: &Value| {
        let request = client.post(gate.at(door)).body(body.to_string());
        runtime.block_on(async {
            let answer = request.header("anthropic-version", "2023-06-01").send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        })
    };
    let strategy = (
        prop::sample::select(&WIRES[..]),
        any::<bool>(),
        any::<Index>(),
        prop::collection::vec((any::<Index>(), change()), 1..5),
        prop::collection::vec((any::<Index>(), change()), 0..2),
    );
    let mut runner = TestRunner::new(Cases::with_cases(32));
    let outcome = runner.run(&strategy, |(wire, is_long, door, first, second)| {
        let doors = doors(wire);
        let door = door.get(&doors);
        let talk = conversation(wire, is_long);
        let body: Value = serde_json::from_str(&talk.body()).unwrap();
        // What was heard of the strange one stands behind what comes then.
        let strange = changed(body.clone(), &first);
        let stranger = changed(strange.clone(), &second);
        for body in [&body, &strange, &stranger, &body] {
            let before = upstream.count();
            let (status, text) = post(door, body);
            prop_assert!(status == 200 || (400..500).contains(&status), "{status}: {text}");
            if upstream.count() > before {
                let sent: Result<Value, _> = serde_json::from_slice(&upstream.last().body);
                prop_assert!(sent.is_ok(), "{door}: no JSON is sent on");
            } else {
                prop_assert!(!text.is_empty(), "{door}: an answer of ours says something");
            }
            prop_assert_eq!(PANICS.load(Ordering::SeqCst), 0);
        }
        Ok(())
    });
    outcome.unwrap();
}
