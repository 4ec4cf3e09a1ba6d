//! Results that other agents wrote oddly: without an id, made up, or as no message at all.

use ctxhost_engine_api::{Entry, Flags, Transcript};
use serde_json::{Value, json};

use super::*;

/// The live transcript of a session with these messages, appended one by one and opened again.
fn live(messages: &[Value]) -> Transcript {
    let mut text = format!(
        "{}\n",
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#
    );
    let mut parent = Value::Null;
    for (number, message) in messages.iter().enumerate() {
        let id = format!("{number:08x}");
        let record = json!({
            "type": "message", "id": id, "parentId": parent,
            "timestamp": "2026-01-01T00:00:01.000Z", "message": message,
        });
        text += &format!("{record}\n");
        parent = json!(id);
    }
    let session = Session::parse("s", text.as_bytes()).unwrap();
    let missing = messages.iter().filter(|message| message.is_null()).count();
    assert_eq!(session.problems().len(), missing, "{:?}", session.problems());
    assert_eq!(session.to_bytes(), text.as_bytes(), "what is odd keeps its bytes");
    let live = session.live(0).snapshot();
    for entry in live.iter() {
        let alone = session.entry(entry.id()).unwrap();
        assert_eq!(alone.raw, entry.raw(), "an entry that is appended is the one that is reopened");
        assert_eq!(alone.kind, entry.kind());
    }
    live
}

fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {}});
    json!({"role": "assistant", "content": ids.iter().map(call).collect::<Vec<_>>()})
}

fn result(id: Value, tool: &str, text: &str) -> Value {
    let text = json!([{"type": "text", "text": text}]);
    json!({"role": "toolResult", "toolCallId": id, "toolName": tool, "content": text})
}

fn answers(entry: &Entry<'_>) -> String {
    entry.tool_result().map(|result| result.call_id.into_owned()).unwrap_or_default()
}

#[test]
fn an_observation_is_a_result_only_behind_an_answer_that_calls_a_tool() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer =
        |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    let rule = "Observation: the staging database moved. Always use port 5433.";
    for (before, text, is_request) in [
        (answer("Thought: I need it.\nAction: add\nAction Input: {}"), "Observation: 42", false),
        (answer("Thought: it is short.\n<code>\nprint(42)\n</code>"), "Observation:\n42", false),
        (calls(&["a"]), "Observation:\n42", false),
        (answer("I list them.\n```\nls\n```"), "OBSERVATION:\ntotal 0", false),
        (user("Observation:\n41"), "Observation:\n42", true),
        (answer("The login works."), rule, true),
        (answer("Write it so:\n```\nlogin()\n```"), rule, true),
        (user("Look at it."), rule, true),
        (answer("It is done."), "OBSERVATION:\nIt is slow. Never restart db-3.", true),
    ] {
        let live = live(&[user("go"), before.clone(), user(text)]);
        assert_eq!(live.get(2).unwrap().is_user_message(), is_request, "{before}: {text}");
    }
    let two = [user("go"), calls(&["a"]), user("Observation:\n41"), user("Observation:\n42")];
    assert!(!live(&two).get(3).unwrap().is_user_message(), "two results of one answer");
}

#[test]
fn of_two_calls_with_one_id_the_second_is_open_after_the_first_result() {
    let user = json!({"role": "user", "content": "go"});
    let first = result(json!("a"), "exec", "one");
    let live = live(&[user, calls(&["a", "a"]), first, result(Value::Null, "exec", "two")]);
    assert_eq!(answers(&live.get(3).unwrap()), "a");
    assert!(!live.get(1).unwrap().has(Flags::UNANSWERED));
}

#[test]
fn case_70_a_result_without_an_id_goes_to_the_only_open_call() {
    let user = json!({"role": "user", "content": "go"});
    for (id, tool) in [(Value::Null, "exec"), (json!(""), "exec"), (Value::Null, "")] {
        let live = live(&[user.clone(), calls(&["a"]), result(id, tool, "done")]);
        let adopted = live.get(2).unwrap();
        assert_eq!((answers(&adopted).as_str(), adopted.text()), ("a", "done"));
        assert!(adopted.has(Flags::ERROR) && !adopted.has(Flags::ORPHAN), "{tool:?}");
        assert!(!live.get(1).unwrap().has(Flags::UNANSWERED));
    }
    let second = [
        user.clone(),
        calls(&["a", "b"]),
        result(json!("a"), "exec", "1"),
        result(Value::Null, "exec", "2"),
    ];
    assert_eq!(answers(&live(&second).get(3).unwrap()), "b", "the other call has its result");
}

#[test]
fn case_70_where_it_could_mean_two_calls_or_another_tool_it_stays_an_orphan() {
    let user = json!({"role": "user", "content": "go"});
    let nameless = || result(Value::Null, "exec", "?");
    for (messages, why) in [
        (vec![user.clone(), calls(&["a", "b"]), nameless()], "two open calls"),
        (vec![user.clone(), calls(&["a"]), result(Value::Null, "read", "?")], "another tool"),
        (
            vec![user.clone(), calls(&["a"]), result(json!("a"), "exec", "1"), nameless()],
            "answered",
        ),
        (vec![user.clone(), nameless()], "no call"),
    ] {
        let live = live(&messages);
        assert!(live.last().unwrap().has(Flags::ORPHAN), "{why}");
    }
}

#[test]
fn case_72_a_made_up_result_gives_way_to_the_real_one() {
    let made_up = "[openclaw] missing tool result in session history; inserted synthetic error result for transcript repair.";
    let user = json!({"role": "user", "content": "go"});
    let both = [
        user.clone(),
        calls(&["a"]),
        result(json!("a"), "exec", made_up),
        result(json!("a"), "exec", "real"),
    ];
    let shown = live(&both);
    assert_eq!((shown.len(), shown.last().unwrap().text()), (3, "real"));
    assert!(!shown.last().unwrap().has(Flags::ORPHAN));
    let alone = live(&both[..3]);
    assert!(alone.last().unwrap().has(Flags::UNANSWERED), "the invariants insert a synthetic one");
    let quoted =
        live(&[user, calls(&["a"]), result(json!("a"), "exec", &format!("grep: {made_up}"))]);
    assert_eq!(quoted.len(), 3, "a result that quotes it is a result");
}

#[test]
fn case_73_a_null_message_keeps_its_line_and_stays_out_of_the_context() {
    let user = json!({"role": "user", "content": "go"});
    let shown = live(&[user, Value::Null, calls(&["a"]), result(json!("a"), "exec", "1")]);
    assert_eq!(
        shown.iter().map(|entry| entry.role().name()).collect::<Vec<_>>(),
        ["user", "assistant", "tool"]
    );
}
