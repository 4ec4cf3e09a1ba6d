//! Codex rollouts: joined replies, every kind of call, events, compactions, turns taken back.

use serde_json::{Value, json};

use super::super::tests::{CODEX, messages, roles, texts};
use super::super::transcript::ImportedItem;
use super::super::{ImportFormat, ImportedTranscript, import_messages};

fn record(of: &str, payload: Value) -> Value {
    json!({ "type": of, "payload": payload })
}

fn item(payload: Value) -> Value {
    record("response_item", payload)
}

fn event(payload: Value) -> Value {
    record("event_msg", payload)
}

fn message(role: &str, text: &str) -> Value {
    let part = if role == "assistant" { "output_text" } else { "input_text" };
    item(json!({ "type": "message", "role": role, "content": [{ "type": part, "text": text }] }))
}

fn turn(text: &str) -> [Value; 2] {
    [message("user", text), event(json!({ "type": "user_message", "message": text }))]
}

fn called(id: &str) -> Value {
    item(json!({ "type": "function_call", "name": "shell", "arguments": "{}", "call_id": id }))
}

fn answered(id: &str, output: impl Into<Value>) -> Value {
    item(json!({ "type": "function_call_output", "call_id": id, "output": output.into() }))
}

fn used(input: u64, cached: u64, output: u64) -> Value {
    let usage = json!({ "input_tokens": input, "cached_input_tokens": cached, "output_tokens": output,
                        "total_tokens": input + output });
    event(json!({ "type": "token_count", "info": { "last_token_usage": usage } }))
}

fn of(records: &[Value]) -> ImportedTranscript {
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    import_messages(ImportFormat::Codex, lines.join("\n").as_bytes()).unwrap()
}

#[test]
fn a_rollout() {
    let imported = import_messages(ImportFormat::Codex, CODEX.as_bytes()).unwrap();
    assert_eq!((imported.id.as_str(), imported.cwd.as_str()), ("t1", "/p"));
    assert_eq!(imported.model, Some(("openai".into(), "gpt-x".into())));
    let start_ms = 1_767_225_600_000_i64;
    let expected = json!([
        { "role": "system", "content": "be brief", "timestamp": start_ms },
        { "role": "user", "content": [{ "type": "text", "text": "list it" }],
          "timestamp": start_ms + 2_000 },
        { "role": "assistant", "content": [
              { "type": "thinking", "thinking": "think", "thinkingSignature": "enc" },
              { "type": "toolCall", "id": "c1", "name": "shell", "arguments": { "command": ["ls"] } },
          ],
          "api": "openai-responses", "provider": "openai", "model": "gpt-x",
          "stopReason": "toolUse", "timestamp": start_ms + 3_000 },
        { "role": "toolResult", "toolCallId": "c1", "toolName": "shell",
          "content": [{ "type": "text", "text": "a b" }], "isError": false,
          "timestamp": start_ms + 5_000 },
    ]);
    assert_eq!(Value::from(messages(&imported)), expected);
}

#[test]
fn text_after_a_compaction_is_a_reply_of_its_own() {
    let history = json!({ "message": "", "replacement_history": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "so far" }] },
    ] });
    let imported = of(&[
        message("user", "go"),
        message("assistant", "before"),
        record("compacted", history),
        message("assistant", "after"),
        called("c1"),
        answered("c1", "one"),
    ]);
    assert_eq!(texts(&imported), ["go", "before", "after", "one"]);
    assert_eq!(imported.compactions[0].at, 2);
    let kinds = messages(&imported)[2]["content"].as_array().unwrap().len();
    assert_eq!(kinds, 2, "text and call of one reply");
}

#[test]
fn calls_join_the_text_before_them_until_a_result() {
    let imported = of(&[
        message("user", "go"),
        message("assistant", "I look"),
        called("c1"),
        called("c2"),
        answered("c1", "one"),
        answered("c2", "two"),
        item(json!({ "type": "reasoning", "summary": [], "encrypted_content": "e" })),
        called("c3"),
        answered("c3", "three"),
        message("assistant", "done"),
    ]);
    assert_eq!(
        roles(&imported),
        "user assistant toolResult toolResult assistant toolResult assistant"
    );
    let kinds: Vec<Vec<Value>> = messages(&imported)
        .iter()
        .filter(|m| m["role"] == "assistant")
        .map(|m| m["content"].as_array().unwrap().iter().map(|b| b["type"].clone()).collect())
        .collect();
    let expected =
        [json!(["text", "toolCall", "toolCall"]), json!(["thinking", "toolCall"]), json!(["text"])];
    assert_eq!(json!(kinds), json!(expected));
}

#[test]
fn calls_of_every_kind() {
    let search = json!({ "type": "web_search_call", "id": "ws_1", "action": { "query": "q" } });
    let cases = [
        (
            json!({ "type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin" }),
            json!({ "type": "toolCall", "id": "c", "name": "apply_patch", "arguments": { "input": "*** Begin" } }),
        ),
        (
            json!({ "type": "local_shell_call", "call_id": "c", "action": { "type": "exec", "command": ["ls"] } }),
            json!({ "type": "toolCall", "id": "c", "name": "local_shell",
                    "arguments": { "type": "exec", "command": ["ls"] } }),
        ),
        (
            json!({ "type": "tool_search_call", "call_id": "c", "arguments": { "query": "q" } }),
            json!({ "type": "toolCall", "id": "c", "name": "tool_search", "arguments": { "query": "q" } }),
        ),
        (
            json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "not json" }),
            json!({ "type": "toolCall", "id": "c", "name": "f", "arguments": { "input": "not json" } }),
        ),
        (search.clone(), search),
        (
            json!({ "type": "reasoning", "summary": [{ "text": "s" }], "content": [{ "text": "c" }] }),
            json!({ "type": "thinking", "thinking": "c" }),
        ),
    ];
    for (written, expected) in cases {
        let imported = of(&[item(written)]);
        assert_eq!(imported.messages[0].message["content"], json!([expected]));
    }
}

#[test]
fn results_of_every_shape() {
    let cases = [
        (json!("plain"), "plain", false),
        (json!([{ "type": "input_text", "text": "part" }]), "part", false),
        (json!({ "content": "no", "success": false }), "no", true),
        (json!({ "content": "x", "content_items": null, "success": true }), "x", false),
        (json!({ "content_items": [{ "type": "input_text", "text": "item" }] }), "item", false),
        (json!({ "exit": 1 }), r#"{"exit":1}"#, false),
        (Value::Null, "", false),
    ];
    for (output, text, is_error) in cases {
        let custom =
            item(json!({ "type": "custom_tool_call_output", "call_id": "c", "output": output }));
        for result in [answered("c", output), custom] {
            let imported = of(&[called("c"), result]);
            assert_eq!(texts(&imported)[1], text);
            assert_eq!(messages(&imported)[1]["isError"], is_error);
            assert_eq!(messages(&imported)[1]["toolName"], "shell");
        }
    }
}

#[test]
fn instructions_are_system_messages() {
    let mut records =
        vec![message("developer", "rules"), message("user", "go"), message("system", "more")];
    records.push(item(json!({ "type": "message", "role": "user", "content": [
        { "type": "input_image", "image_url": "data:image/png;base64,A" }] })));
    let imported = of(&records);
    assert_eq!(roles(&imported), "system user system user");
    assert_eq!(messages(&imported)[3]["content"][0]["type"], "image");
}

#[test]
fn events_that_repeat_items_are_passed_over() {
    let [user, user_event] = turn("go");
    let imported = of(&[
        event(json!({ "type": "task_started", "turn_id": "1" })),
        user,
        user_event,
        event(json!({ "type": "agent_reasoning", "text": "hm" })),
        message("assistant", "done"),
        event(json!({ "type": "agent_message", "message": "done" })),
        record("world_state", json!({ "full": {} })),
        item(json!({ "type": "ghost_snapshot", "ghost_commit": {} })),
    ]);
    assert_eq!(texts(&imported), ["go", "done"]);
    assert_eq!(imported.problems, []);
}

#[test]
fn usage_goes_to_the_reply_it_counts() {
    let imported = of(&[
        message("user", "go"),
        used(9, 9, 9),
        called("c"),
        used(100, 60, 5),
        answered("c", "r"),
        event(json!({ "type": "token_count", "info": null })),
        message("assistant", "done"),
        used(200, 0, 7),
        record("compacted", json!({ "message": "summary" })),
        used(3, 0, 0),
    ]);
    let messages = messages(&imported);
    assert_eq!(messages[1]["usage"]["input"], 40);
    assert_eq!(messages[1]["usage"]["cacheRead"], 60);
    assert_eq!(messages[1]["usage"]["totalTokens"], 105);
    assert_eq!(messages[3]["usage"]["totalTokens"], 207);
}

/// The first user message of the history stays, and the summary is new.
fn replaced(summary: &str) -> Value {
    let words = |text: &str| json!([{ "type": "input_text", "text": text }]);
    record(
        "compacted",
        json!({ "message": summary, "replacement_history": [
            { "type": "message", "role": "developer", "content": words("rules") },
            { "type": "message", "role": "user", "content": words("go") },
            { "type": "message", "role": "user", "content": words(summary) },
        ]}),
    )
}

fn insert(text: &str) -> ImportedItem {
    ImportedItem::Insert { is_reply: false, text: text.into() }
}

#[test]
fn a_replacement_history_is_what_stays() {
    let head = record(
        "session_meta",
        json!({ "id": "t", "instructions": "be brief", "cli_version": "9" }),
    );
    let imported = of(&[
        head,
        message("developer", "rules"),
        message("user", "go"),
        message("assistant", "done"),
        used(100, 60, 5),
        replaced("so far"),
        event(json!({ "type": "context_compacted" })),
        message("user", "next"),
    ]);
    assert_eq!(texts(&imported)[2..], ["go", "done", "next"]);
    assert_eq!(imported.agent_version, "9");
    assert_eq!(imported.problems, []);
    let compaction = &imported.compactions[0];
    assert_eq!((compaction.at, compaction.tokens_before), (4, 105));
    let kept = [ImportedItem::Keep(0..3)];
    assert_eq!(compaction.items, [&kept[..], &[insert("so far")]].concat());
}

#[test]
fn a_summary_alone_keeps_the_newest_messages_of_the_user() {
    let long = "x".repeat(79_990);
    let imported = of(&[
        message("user", "an old request of many words"),
        message("assistant", "done"),
        message("user", &long),
        record("compacted", json!({ "message": "so far" })),
    ]);
    let [ImportedItem::ReplaceText { message: 0, text }, ImportedItem::Keep(kept), summary] =
        imported.compactions[0].items.as_slice()
    else {
        panic!("{:?}", imported.compactions)
    };
    assert_eq!(text, "an ol… 18 characters truncated …words");
    assert_eq!((kept, summary), (&(2..3), &insert("so far")));
}

#[test]
fn an_encrypted_summary_is_named_and_an_event_alone_is_noted() {
    let imported = of(&[
        message("user", "go"),
        record(
            "compacted",
            json!({ "message": "", "replacement_history": [
            { "type": "compaction", "encrypted_content": "abcdef" } ] }),
        ),
        message("user", "next"),
        event(json!({ "type": "context_compacted" })),
        message("user", "more"),
    ]);
    let ImportedItem::Insert { text, .. } = &imported.compactions[0].items[0] else { panic!() };
    assert!(text.contains("6 bytes"), "{text}");
    assert_eq!(imported.problems[0].line, 4);
}

#[test]
fn a_rollback_past_a_compaction_takes_it_back() {
    let [first, first_event] = turn("go");
    let [second, second_event] = turn("two");
    let records = [
        first,
        first_event,
        message("assistant", "done"),
        second,
        second_event,
        replaced("so far"),
        event(json!({ "type": "thread_rolled_back", "num_turns": 1 })),
    ];
    let imported = of(&records);
    assert_eq!((texts(&imported).join(" "), imported.compactions), ("go done".into(), vec![]));
    assert_eq!(of(&records[..6]).compactions.len(), 1);
}

#[test]
fn compactions_count_only_where_nothing_else_is_left() {
    let history = json!({ "message": "", "replacement_history": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "kept" }] },
        { "type": "compaction", "encrypted_content": "e" },
    ]});
    let whole = of(&[
        message("user", "go"),
        message("developer", "rules"),
        record("compacted", history.clone()),
    ]);
    assert_eq!(texts(&whole), ["go", "rules"]);
    let head = record("session_meta", json!({ "id": "t", "instructions": "be brief" }));
    let forked = of(&[head, record("compacted", history), message("user", "next")]);
    assert_eq!(roles(&forked), "system user assistant user");
    assert_eq!(messages(&forked)[2]["content"][0]["type"], "compaction");
    let old = of(&[record("compacted", json!({ "message": "summary" })), message("user", "next")]);
    assert_eq!(texts(&old), ["summary", "next"]);
}

#[test]
fn turns_taken_back_are_gone() {
    let rolled_back =
        |count: u64| event(json!({ "type": "thread_rolled_back", "num_turns": count }));
    let mut records = vec![message("user", "<environment_context>")];
    for text in ["one", "two", "three"] {
        records.extend(turn(text));
        records.push(message("assistant", &format!("to {text}")));
    }
    records.push(rolled_back(2));
    let [user, user_event] = turn("two again");
    records.extend([user_event, user]);
    assert_eq!(texts(&of(&records)), ["<environment_context>", "one", "to one", "two again"]);

    records.push(rolled_back(1));
    assert_eq!(texts(&of(&records)), ["<environment_context>", "one", "to one"]);

    records.extend([rolled_back(9), rolled_back(1)]);
    let imported = of(&records);
    assert_eq!(texts(&imported), ["<environment_context>"]);
    assert_eq!(imported.problems.len(), 1);
    assert_eq!(imported.problems[0].line, records.len() as u64);
}

#[test]
fn a_fork_keeps_its_own_head() {
    let head = |id: &str| {
        record(
            "session_meta",
            json!({ "id": id, "cwd": format!("/{id}"),
        "model_provider": id, "base_instructions": { "text": id } }),
        )
    };
    let context = record("turn_context", json!({ "cwd": "/later", "model": "gpt-x" }));
    let imported = of(&[head("own"), head("parent"), context, message("user", "go")]);
    assert_eq!((imported.id.as_str(), imported.cwd.as_str()), ("own", "/own"));
    assert_eq!(imported.model, Some(("own".into(), "gpt-x".into())));
    assert_eq!(texts(&imported), ["own", "go"]);
}

#[test]
fn what_is_wrong_is_noted_with_its_line() {
    let imported = of(&[
        message("user", "go"),
        json!({ "type": "response_item" }),
        json!({ "payload": {} }),
        item(json!({ "role": "user" })),
        item(json!({ "type": "message", "role": "robot" })),
        item(json!({ "type": "message", "role": "user", "content": [] })),
        record("compacted", json!({})),
        json!("text"),
    ]);
    let lines: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
    assert_eq!((texts(&imported), lines), (vec!["go".to_owned()], vec![2, 3, 4, 5, 6, 7, 8]));
}

#[test]
fn the_newest_window_of_the_model_is_kept() {
    let started = |tokens: u64| {
        event(json!({ "type": "task_started", "turn_id": "1", "model_context_window": tokens }))
    };
    let counted =
        event(json!({ "type": "token_count", "info": { "model_context_window": 96_000 } }));
    let [asked, echo] = turn("go on");
    let base = [asked, echo, message("assistant", "done")];
    let with = |events: &[Value]| of(&[events, &base].concat()).window_tokens;
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[started(272_000)]), Some(272_000));
    assert_eq!(with(&[started(272_000), counted.clone()]), Some(96_000));
    assert_eq!(with(&[counted, started(0)]), None, "0 is not a window");
}
