//! Claude Code sessions: merged replies, side chains, compactions, prompts taken back.

use serde_json::{Value, json};

use super::super::tests::{CLAUDE_CODE, messages, roles, texts};
use super::super::transcript::{ImportedCompaction, ImportedItem};
use super::super::{ImportFormat, ImportedTranscript, import_messages};
use ctxhost_text::injected_text::user_text;

fn of(records: &[Value]) -> ImportedTranscript {
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    import_messages(ImportFormat::ClaudeCode, lines.join("\n").as_bytes()).unwrap()
}

fn user(uuid: &str, parent: Option<&str>, content: impl Into<Value>) -> Value {
    json!({ "type": "user", "uuid": uuid, "parentUuid": parent,
            "message": { "role": "user", "content": content.into() } })
}

fn reply(uuid: &str, parent: &str, id: &str, block: Value) -> Value {
    json!({ "type": "assistant", "uuid": uuid, "parentUuid": parent,
            "message": { "id": id, "role": "assistant", "model": "claude-x", "content": [block] } })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn with(mut record: Value, name: &str, value: impl Into<Value>) -> Value {
    record[name] = value.into();
    record
}

#[test]
fn records_of_one_reply_become_one_message() {
    let imported = import_messages(ImportFormat::ClaudeCode, CLAUDE_CODE.as_bytes()).unwrap();
    assert_eq!((imported.id.as_str(), imported.cwd.as_str()), ("s1", "/p"));
    assert_eq!(imported.model, Some(("anthropic".into(), "claude-x".into())));
    let start_ms = 1_767_225_600_000_i64;
    let expected = json!([
        { "role": "user", "content": [{ "type": "text", "text": "read it" }], "timestamp": start_ms },
        { "role": "assistant", "content": [
              { "type": "thinking", "thinking": "hm", "thinkingSignature": "sig" },
              { "type": "toolCall", "id": "c1", "name": "Read", "arguments": { "path": "a" } },
          ],
          "api": "anthropic-messages", "provider": "anthropic", "model": "claude-x",
          "usage": { "input": 5, "output": 7, "cacheRead": 11, "cacheWrite": 13, "totalTokens": 36,
                     "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 } },
          "stopReason": "toolUse", "timestamp": start_ms + 1_000 },
        { "role": "toolResult", "toolCallId": "c1", "toolName": "Read",
          "content": [{ "type": "text", "text": "text of a" }], "isError": false,
          "timestamp": start_ms + 3_000 },
    ]);
    assert_eq!(Value::from(messages(&imported)), expected);
}

#[test]
fn results_between_the_records_of_a_reply_do_not_split_it() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} });
    let result = |id: &str| json!([{ "type": "tool_result", "tool_use_id": id, "content": id }]);
    let imported = of(&[
        user("u", None, "go"),
        reply("a1", "u", "m1", call("c1")),
        user("r1", Some("a1"), result("c1")),
        reply("a2", "a1", "m1", call("c2")),
        user("r2", Some("a2"), result("c2")),
        reply("a3", "r2", "m2", text("done")),
    ]);
    assert_eq!(roles(&imported), "user assistant toolResult toolResult assistant");
    let calls = messages(&imported)[1]["content"].as_array().unwrap().len();
    assert_eq!(calls, 2);
}

#[test]
fn notes_and_side_chains_are_passed_over() {
    let imported = of(&[
        json!({ "type": "file-history-snapshot", "snapshot": {} }),
        with(user("n", None, "a note"), "isMeta", true),
        user("u", Some("n"), "go"),
        with(user("s", Some("u"), "sub task"), "isSidechain", true),
        with(reply("t", "s", "m9", text("sub reply")), "isSidechain", true),
        json!({ "type": "attachment", "uuid": "x", "parentUuid": "u" }),
        reply("a", "x", "m1", text("done")),
        json!({ "type": "summary", "summary": "title", "leafUuid": "a" }),
    ]);
    assert_eq!(texts(&imported), ["go", "done"]);
    assert_eq!(imported.problems, []);
}

#[test]
fn the_file_of_a_sub_agent_is_a_session() {
    let imported = of(&[
        with(user("s", None, "sub task"), "isSidechain", true),
        with(reply("t", "s", "m", text("sub reply")), "isSidechain", true),
    ]);
    assert_eq!(texts(&imported), ["sub task", "sub reply"]);
}

#[test]
fn the_agents_own_summary_counts_only_where_nothing_else_is_left() {
    let boundary =
        json!({ "type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": null });
    let summary = with(user("s", Some("b"), "summary"), "isCompactSummary", true);
    let later = user("v", Some("s"), "next");
    let whole = of(&[user("u", None, "go"), boundary.clone(), summary.clone(), later.clone()]);
    assert_eq!(texts(&whole), ["go", "next"]);
    let continued = of(&[boundary, summary, later]);
    assert_eq!(texts(&continued), ["summary", "next"]);
}

fn boundary(uuid: &str, logical_parent: &str, metadata: Value) -> Value {
    json!({ "type": "system", "subtype": "compact_boundary", "uuid": uuid, "parentUuid": null,
            "logicalParentUuid": logical_parent, "compactMetadata": metadata })
}

fn insert(text: &str) -> ImportedItem {
    ImportedItem::Insert { is_reply: false, text: text.into() }
}

#[test]
fn a_boundary_with_its_summary_is_a_compaction() {
    let summary = with(user("s", Some("b"), "so far"), "isCompactSummary", true);
    let metadata = json!({ "trigger": "auto", "preTokens": 900, "postTokens": 90 });
    let talk = [user("u", None, "go"), reply("a", "u", "m1", text("done"))];
    let records =
        [&talk[..], &[boundary("b", "a", metadata), summary, user("v", Some("s"), "next")]]
            .concat();
    let imported = of(&records);
    assert_eq!(texts(&imported), ["go", "done", "next"]);
    let expected = ImportedCompaction {
        at: 2,
        is_edit: false,
        items: vec![insert("so far")],
        trigger: "auto".into(),
        tokens_before: 900,
        tokens_after: 90,
        timestamp_ms: 1_000,
    };
    assert_eq!(imported.compactions, [expected]);
    assert_eq!(of(&[&records[..], &records[..]].concat()).compactions, imported.compactions);
}

#[test]
fn preserved_messages_stay_by_list_and_by_segment() {
    let talk = [
        user("u1", None, "one"),
        reply("a1", "u1", "m1", text("first")),
        user("u2", Some("a1"), "two"),
        reply("a2", "u2", "m2", text("second")),
        reply(
            "a3",
            "a2",
            "m2",
            json!({ "type": "tool_use", "id": "c", "name": "Read", "input": {} }),
        ),
    ];
    let summary = with(user("s", Some("b"), "so far"), "isCompactSummary", true);
    let kept = |metadata: Value| {
        let end = [boundary("b", "a3", metadata), summary.clone()];
        of(&[&talk[..], &end].concat()).compactions[0].items.clone()
    };
    let expected = [insert("so far"), ImportedItem::Keep(2..4)];
    let listed =
        json!({ "preservedMessages": { "anchorUuid": "s", "uuids": ["a3", "u2", "gone"] } });
    assert_eq!(kept(listed), expected);
    let segment = |head: &str| json!({ "preservedSegment": { "headUuid": head, "anchorUuid": "s", "tailUuid": "a3" } });
    assert_eq!(kept(segment("u2")), expected);
    assert_eq!(kept(segment("nowhere")), [insert("so far")]);
}

#[test]
fn a_summary_without_a_boundary_and_a_boundary_without_a_summary_count() {
    let summary = with(user("s", Some("a"), "so far"), "isCompactSummary", true);
    let old = of(&[user("u", None, "go"), summary]);
    assert_eq!(old.compactions[0].items, [insert("so far")]);
    let torn = of(&[user("u", None, "go"), boundary("b", "u", json!({}))]);
    assert_eq!(torn.compactions[0].items, []);
}

#[test]
fn cleared_results_keep_their_text_in_the_history() {
    let result = |uuid: &str, text: &str| {
        user(
            uuid,
            Some("a"),
            json!([{ "type": "tool_result", "tool_use_id": "c", "content": text }]),
        )
    };
    let call = json!({ "type": "tool_use", "id": "c", "name": "Read", "input": {} });
    let talk =
        [user("u", None, "go"), reply("a", "u", "m", call), result("r", "port 5433 is open")];
    let expected =
        ImportedItem::ReplaceText { message: 2, text: "[Old tool result content cleared]".into() };
    let marked = of(&[&talk[..], &[result("r2", "[Old tool result content cleared]")]].concat());
    let boundary = json!({ "type": "system", "subtype": "microcompact_boundary", "uuid": "m",
                           "microcompactMetadata": { "compactedToolIds": ["c", "unknown"] } });
    for imported in [marked, of(&[&talk[..], &[boundary]].concat())] {
        assert_eq!(texts(&imported), ["go", "", "port 5433 is open"]);
        assert_eq!(imported.compactions[0].trigger, "prune");
        assert_eq!(imported.compactions[0].items, std::slice::from_ref(&expected));
    }
    let only_marker =
        of(&[&talk[..2], &[result("r", "[Old tool result content cleared]")]].concat());
    assert_eq!(texts(&only_marker)[2], "[Old tool result content cleared]");
}

#[test]
fn a_prompt_that_was_reverted_takes_its_compaction_along() {
    let summary = with(user("s", Some("b"), "so far"), "isCompactSummary", true);
    let imported = of(&[
        user("u1", None, "one"),
        reply("a1", "u1", "m1", text("first")),
        user("u2", Some("a1"), "two, wrong"),
        boundary("b", "u2", json!({})),
        summary,
        reply("a2", "s", "m2", text("to the wrong one")),
        user("v2", Some("a1"), "two"),
    ]);
    assert_eq!(
        (texts(&imported).join(" "), imported.compactions),
        ("one first two".into(), vec![])
    );
}

#[test]
fn reverted_prompts_are_skipped_with_their_replies() {
    let imported = of(&[
        user("u1", None, "one"),
        reply("a1", "u1", "m1", text("first")),
        user("u2", Some("a1"), "two, wrong"),
        reply("a2", "u2", "m2", text("to the wrong one")),
        user("u3", Some("a2"), "three, wrong too"),
        user("v2", Some("a1"), "two"),
        reply("b2", "v2", "m3", text("second")),
    ]);
    assert_eq!(texts(&imported), ["one", "first", "two", "second"]);
}

fn last_prompt(leaf: &str) -> Value {
    json!({ "type": "last-prompt", "lastPrompt": "text", "leafUuid": leaf })
}

#[test]
fn a_rewind_to_the_first_prompt_begins_a_new_tree() {
    let records = [
        user("1", None, "wrong"),
        reply("2", "1", "m1", text("to the wrong one")),
        user("3", None, "right"),
        reply("4", "3", "m2", text("to the right one")),
    ];
    let rewound = of(&[&records[..], &[last_prompt("4")]].concat());
    assert_eq!(texts(&rewound), ["right", "to the right one"]);
    // Only a note of the agent tells a rewind from a file whose links are missing.
    for note in [vec![], vec![last_prompt("gone")], vec![last_prompt("2")]] {
        let kept = of(&[&records[..], &note].concat());
        assert_eq!(texts(&kept).len(), 4, "{note:?}");
    }
    let missing = [user("1", Some("gone"), "one"), user("3", None, "two"), last_prompt("3")];
    assert_eq!(texts(&of(&missing)), ["one", "two"]);
}

#[test]
fn a_branch_that_begins_with_a_command_replaces_a_prompt() {
    let caveat = "<local-command-caveat>Caveat</local-command-caveat>";
    let imported = of(&[
        user("1", None, "one"),
        reply("2", "1", "m1", text("first")),
        user("3", Some("2"), "wrong"),
        reply("4", "3", "m2", text("to the wrong one")),
        with(user("5", Some("2"), caveat), "isMeta", true),
        user("6", Some("5"), "<command-name>/model</command-name>"),
        user("8", Some("6"), "right"),
        reply("9", "8", "m3", text("second")),
    ]);
    let expected = ["one", "first", "<command-name>/model</command-name>", "right", "second"];
    assert_eq!(texts(&imported), expected);
}

#[test]
fn records_before_their_parent_share_its_branch() {
    let imported = of(&[
        user("1", None, "one"),
        reply("2", "1", "m1", text("first")),
        json!({ "type": "attachment", "uuid": "4", "parentUuid": "3" }),
        user("3", Some("2"), "wrong"),
        reply("5", "4", "m2", text("to the wrong one")),
        user("6", Some("2"), "right"),
        reply("7", "6", "m3", text("second")),
    ]);
    assert_eq!(texts(&imported), ["one", "first", "right", "second"]);
}

#[test]
fn results_of_parallel_calls_are_no_abandoned_branch() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} });
    let result = |id: &str| json!([{ "type": "tool_result", "tool_use_id": id, "content": id }]);
    let records = [
        user("u", None, "go"),
        reply("a1", "u", "m1", call("c1")),
        reply("a2", "a1", "m1", call("c2")),
        user("r1", Some("a1"), result("c1")),
        user("r2", Some("a2"), result("c2")),
        reply("a3", "r1", "m2", text("done")),
        user("v", Some("a3"), "next"),
    ];
    assert_eq!(texts(&of(&records)), ["go", "", "c1", "c2", "done", "next"]);
    let noted = of(&[&records[..], &[last_prompt("v")]].concat());
    assert_eq!(texts(&noted), ["go", "", "c1", "c2", "done", "next"]);
}

#[test]
fn what_a_compaction_summarized_is_no_abandoned_branch() {
    let summary = with(user("s", Some("b"), "so far"), "isCompactSummary", true);
    let imported = of(&[
        user("u", None, "one"),
        reply("a", "u", "m1", text("first")),
        user("v", Some("a"), "two"),
        reply("c", "v", "m2", text("second")),
        boundary("b", "a", json!({})),
        summary,
        user("w", Some("s"), "three"),
    ]);
    assert_eq!(texts(&imported), ["one", "first", "two", "second", "three"]);
    assert_eq!(imported.compactions[0].at, 4);
}

fn queued(uuid: &str, parent: &str, mode: &str, prompt: impl Into<Value>) -> Value {
    let attachment =
        json!({ "type": "queued_command", "commandMode": mode, "prompt": prompt.into() });
    json!({ "type": "attachment", "uuid": uuid, "parentUuid": parent, "attachment": attachment })
}

#[test]
fn prompts_that_were_typed_while_the_agent_worked_count() {
    let note = "<task-notification>done</task-notification>";
    let mut hidden = queued("q5", "q4", "prompt", "hidden");
    hidden["attachment"]["isMeta"] = true.into();
    let mut of_peer = queued("q6", "q5", "prompt", "from a peer");
    of_peer["attachment"]["origin"] = json!({ "kind": "peer" });
    let imported = of(&[
        user("u", None, "go"),
        reply("a", "u", "m1", text("at work")),
        queued("q1", "a", "prompt", "use port 5433"),
        queued("q2", "q1", "prompt", json!([{ "type": "text", "text": "and tests" }])),
        queued("q3", "q2", "task-notification", note),
        queued("q4", "q3", "bash", "ls"),
        hidden,
        of_peer,
        reply("b", "q6", "m2", text("done")),
    ]);
    let of_user = texts(&imported).into_iter().map(|text| user_text(&text).into_owned());
    let of_user: Vec<String> = of_user.collect();
    assert_eq!(of_user, ["go", "at work", "use port 5433", "and tests", "", "", "done"]);
    assert_eq!(texts(&imported)[4], note);
    assert_eq!(imported.problems, []);
}

#[test]
fn a_queued_prompt_that_is_repeated_as_a_prompt_counts_once() {
    let mut named = queued("q3", "b", "prompt", "three");
    named["attachment"]["source_uuid"] = "w".into();
    let mut late = queued("q4", "w", "prompt", "four");
    late["attachment"]["source_uuid"] = "x".into();
    let imported = of(&[
        user("u", None, "one"),
        reply("a", "u", "m1", text("first")),
        queued("q1", "a", "prompt", "two"),
        user("v", Some("q1"), "two"),
        reply("b", "v", "m2", text("second")),
        // After a reply, the same text was typed again.
        user("v2", Some("b"), "two"),
        named,
        user("w", Some("v2"), "three, as sent"),
        user("x", Some("w"), "four"),
        late,
    ]);
    assert_eq!(texts(&imported), ["one", "first", "two", "second", "two", "three", "four"]);
}

#[test]
fn records_that_a_resumed_session_repeats_count_once() {
    let once = import_messages(ImportFormat::ClaudeCode, CLAUDE_CODE.as_bytes()).unwrap();
    let twice =
        import_messages(ImportFormat::ClaudeCode, CLAUDE_CODE.repeat(2).as_bytes()).unwrap();
    assert_eq!(twice, once);
    let records = [user("u", Some("x"), "go"), reply("a", "u", "m", text("done"))];
    assert_eq!(texts(&of(&[records.clone(), records].concat())), ["go", "done"]);
}

#[test]
fn an_error_of_the_api_is_no_reply_of_the_model() {
    let mut error = reply("e", "u", "m2", text("API Error: overloaded"));
    error["isApiErrorMessage"] = true.into();
    error["message"]["model"] = "<synthetic>".into();
    error["message"]["stop_reason"] = "stop_sequence".into();
    let imported = of(&[user("u", None, "go"), reply("a", "u", "m1", text("hm")), error]);
    let message = &messages(&imported)[2];
    assert_eq!(message["stopReason"], "error");
    assert_eq!(message["errorMessage"], "API Error: overloaded");
    assert_eq!(message["model"], "claude-x");
    assert_eq!(imported.model, Some(("anthropic".into(), "claude-x".into())));
}

#[test]
fn a_reply_that_the_agent_wrote_does_not_name_the_model() {
    let mut synthetic = reply("s", "v", "m2", text("No response requested."));
    synthetic["message"]["model"] = "<synthetic>".into();
    synthetic["message"]["usage"] = json!({ "input_tokens": 0, "output_tokens": 0 });
    let records = [
        user("u", None, "go"),
        reply("a", "u", "m1", text("done")),
        user("v", Some("a"), "next"),
        synthetic,
    ];
    let imported = of(&records);
    assert_eq!(imported.model, Some(("anthropic".into(), "claude-x".into())));
    assert_eq!(texts(&imported)[3], "No response requested.");
    assert!(messages(&imported)[3].get("usage").is_none());
    assert_eq!(messages(&imported)[3]["model"], "claude-x");
}

#[test]
fn what_is_wrong_is_noted_with_its_line() {
    let text = concat!(
        r#"{"type":"user","uuid":"u","message":{"role":"user","content":"go"}}"#,
        "\n",
        r#"{"type":"user","message":"error"}"#,
        "\n",
        r#"{"silly":"this"}"#,
        "\n",
        r#"{"type":"user","message":{"role":"user","contenst":[]}}"#,
        "\n",
        r#""massive error""#,
        "\n",
        r#"{"type":"user""#,
    );
    let imported = import_messages(ImportFormat::ClaudeCode, text.as_bytes()).unwrap();
    let lines: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
    assert_eq!((texts(&imported), lines), (vec!["go".to_owned()], vec![2, 3, 4, 5, 6]));
}

#[test]
fn results_that_are_cleared_one_by_one_are_recorded_one_by_one() {
    let count = 300;
    let talk = (0..count).flat_map(|n| {
        let call =
            json!({ "type": "tool_use", "id": format!("c{n}"), "name": "Read", "input": {} });
        let result =
            json!([{ "type": "tool_result", "tool_use_id": format!("c{n}"), "content": "text" }]);
        let metadata = json!({ "compactedToolIds": [format!("c{n}")] });
        let cleared = json!({ "type": "system", "subtype": "microcompact_boundary",
                              "uuid": format!("m{n}"), "microcompactMetadata": metadata });
        let (ask, answer) = (format!("u{n}"), format!("a{n}"));
        [
            user(&ask, None, "go"),
            reply(&answer, &ask, &answer, call),
            user(&format!("r{n}"), Some(&answer), result),
            cleared,
        ]
    });
    let imported = of(&talk.collect::<Vec<_>>());
    assert_eq!(imported.compactions.len(), count);
    let items: usize = imported.compactions.iter().map(|compaction| compaction.items.len()).sum();
    assert_eq!(items, count, "the whole context of each would be {} items", count * count * 3 / 2);
}

#[test]
fn a_long_segment_that_stays_is_one_item() {
    let count = 200;
    let mut records = vec![user("u0", None, "go")];
    for n in 0..count {
        records.push(user(&format!("u{}", n + 1), Some(&format!("u{n}")), "next"));
        let segment = json!({ "headUuid": "u0", "tailUuid": format!("u{}", n + 1) });
        records.push(
            json!({ "type": "system", "subtype": "compact_boundary", "uuid": format!("b{n}"),
                             "compactMetadata": { "preservedSegment": segment } }),
        );
    }
    let imported = of(&records);
    assert_eq!(imported.compactions.len(), count);
    for (n, compaction) in imported.compactions.iter().enumerate() {
        assert_eq!(compaction.items, [ImportedItem::Keep(0..n + 2)]);
    }
}
