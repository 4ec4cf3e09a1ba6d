//! Conversations over the window with an item that serde_json refuses, with call ids that come twice, or
//! with too many items.

use super::*;
use crate::proxy::core::lock;

const WINDOW_TOKENS: u64 = 8_000;

/// A long conversation that ends with these items.
fn long_conversation(tail: &[&str]) -> String {
    let text = |round: usize| format!("{round}: {}", "some more words ".repeat(60));
    let rounds = (0..30).flat_map(|round| {
        let answer = json!({ "role": "assistant", "content": text(round) });
        [user(&format!("Question {round}.")).to_string(), answer.to_string()]
    });
    let tail = tail.iter().map(|item| (*item).to_owned());
    let items: Vec<String> = rounds.chain(tail).collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, items.join(","))
}

/// Checks that such a conversation is shaped, and that its last items are sent as they are.
async fn check_shaped(tail: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), WINDOW_TOKENS).await;
    let body = long_conversation(tail);
    let sent = gateway.send(None, body.clone()).await;
    assert_ne!(sent.report.engine, "none", "{tail:?}");
    let shaped = String::from_utf8(sent.body.to_vec()).unwrap();
    assert!(shaped.len() < body.len() / 2, "{} of {} bytes", shaped.len(), body.len());
    assert!(shaped.ends_with(&format!("{}]}}", tail.join(","))), "{shaped}");
    assert_eq!(lock(&gateway.proxy.unshaped).len(), 0);
    // The same request again, and the next one, belong to the same session.
    let session = sent.report.session.clone();
    gateway.proxy.record_answer(sent.in_flight, AnswerReport::default());
    let mut longer = tail.to_vec();
    longer.extend([
        r#"{"role":"assistant","content":"Yes."}"#,
        r#"{"role":"user","content":"And now?"}"#,
    ]);
    assert_eq!(gateway.send(None, long_conversation(&longer)).await.report.session, session);
    gateway.close().await;
}

#[tokio::test]
async fn an_item_that_the_parser_refuses_is_shaped_around() {
    let deep =
        format!(r#"{{"role":"user","content":"D","x":{}{}}}"#, "[".repeat(130), "]".repeat(130));
    for odd in [
        r#"{"role":"user","content":"A \ud83d cut"}"#,
        r#"{"role":"user","content":"B","\ud83d":1}"#,
        r#"{"role":"user","content":"C","x":1e400}"#,
        &deep,
    ] {
        check_shaped(&[odd, r#"{"role":"user","content":"last"}"#]).await;
    }
}

#[tokio::test]
async fn a_cut_result_is_shortened_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), WINDOW_TOKENS).await;
    let result =
        json!({ "role": "tool", "tool_call_id": "call_1", "content": "long text ".repeat(9_000) });
    let result = result.to_string().replace("long", r"long\ud83d");
    let body = long_conversation(&[&user("go").to_string(), &call(1).to_string(), &result]);
    let sent = gateway.send(None, body).await;
    let shaped: Value = serde_json::from_slice(&sent.body).unwrap();
    let last = shaped["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["tool_call_id"], "call_1");
    let text = last["content"].as_str().unwrap();
    assert!(text.len() < 30_000 && text.starts_with("long\u{FFFD} text"), "{text}");
    gateway.close().await;
}

#[tokio::test]
async fn both_results_of_two_calls_with_one_id_stay() {
    let function = |name: &str| json!({ "name": name, "arguments": "{}" });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": "a", "type": "function", "function": function("read") },
        { "id": "a", "type": "function", "function": function("list") },
    ] });
    let result =
        |text: &str| json!({ "role": "tool", "tool_call_id": "a", "content": text }).to_string();
    let (ask, calls, first, second) =
        (user("start").to_string(), calls.to_string(), result("text"), result("files"));
    check_shaped(&[&ask, &calls, &first, &second]).await;
}

#[tokio::test]
async fn an_unreadable_conversation_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), WINDOW_TOKENS).await;
    let reported = || lock(&gateway.proxy.unshaped).len();
    let mut tail = vec![r#""H""#];
    for _ in 0..3 {
        let body = long_conversation(&tail);
        assert_eq!(gateway.send(None, body.clone()).await.body, body);
        assert_eq!(reported(), 1);
        tail.push(r#"{"role":"user","content":"once more"}"#);
    }
    // A body that is not a request has no conversation, only a start.
    for rest in ["", "!", "!!"] {
        gateway.send(None, format!("{}{rest}", "not JSON".repeat(100))).await;
        let not_utf8 = [[0xFF_u8; 600].as_slice(), rest.as_bytes()].concat();
        gateway.send(None, not_utf8).await;
    }
    assert_eq!(reported(), 3);
    gateway.close().await;
}

#[tokio::test]
async fn a_request_of_too_many_messages_is_forwarded_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::with(folder.path(), 100_000, "max_messages = 3").await;
    let messages: Vec<Value> =
        (0..4).map(|at| json!({ "role": "user", "content": format!("part {at}") })).collect();
    assert!(gateway.ask(&messages[..3]).await.tokens.is_some());
    let known = gateway.runtime.open_sessions();
    assert_eq!(gateway.ask(&messages).await.tokens, None);
    assert_eq!(gateway.runtime.open_sessions(), known);
}

/// Sends a conversation that grows by these rounds, and checks that each result follows a call.
async fn check_results_follow_calls(rounds: &[Vec<Value>]) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), WINDOW_TOKENS).await;
    let mut messages = vec![user("go")];
    let mut is_shaped = false;
    for round in rounds {
        messages.extend_from_slice(round);
        let sent = gateway.forward(None, &messages).await;
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        let sent_messages = body["messages"].as_array().unwrap();
        is_shaped |= sent_messages.len() < messages.len();
        for (at, message) in sent_messages.iter().enumerate().filter(|(_, m)| m["role"] == "tool") {
            let before = at.checked_sub(1).map(|at| &sent_messages[at]);
            let follows = before.is_some_and(|before| {
                before["role"] == "tool" || before.get("tool_calls").is_some()
            });
            assert!(follows, "{message} after {before:?}");
        }
        gateway.proxy.record_answer(sent.in_flight, AnswerReport::default());
    }
    assert!(is_shaped);
    gateway.close().await;
}

fn round_of_two(number: usize, call_id: Option<&str>, result_id: Option<&str>) -> Vec<Value> {
    let with_id = |mut item: Value, field: &str, id: Option<&str>| {
        if let Some(id) = id {
            item[field] = id.into();
        }
        item
    };
    let calls = [1, 2].map(|part| {
        let arguments = format!("{{\"path\":\"f{number}-{part}\"}}");
        let function = json!({ "name": "read", "arguments": arguments });
        with_id(json!({ "type": "function", "function": function }), "id", call_id)
    });
    let text = "the system reads a file and writes records ".repeat(20);
    let result = json!({ "role": "tool", "name": "read", "content": format!("{number} {text}") });
    let results = [(); 2].map(|()| with_id(result.clone(), "tool_call_id", result_id));
    let answer = json!({ "role": "assistant", "content": "", "tool_calls": calls });
    [vec![answer], results.to_vec()].concat()
}

#[tokio::test]
async fn calls_without_ids_are_folded_with_their_results() {
    for id in [None, Some("")] {
        let rounds: Vec<_> = (0..30).map(|number| round_of_two(number, id, id)).collect();
        check_results_follow_calls(&rounds).await;
    }
}

#[tokio::test]
async fn results_of_unknown_calls_are_sent_as_texts_once_their_place_is_gone() {
    let rounds: Vec<_> =
        (0..30).map(|number| round_of_two(number, Some("a"), Some("other"))).collect();
    check_results_follow_calls(&rounds).await;
}
