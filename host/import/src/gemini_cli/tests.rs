//! Gemini CLI chats: messages written again, rewinds, compressions, the older document.

use serde_json::{Value, json};

use super::super::tests::{messages, roles, texts};
use super::super::transcript::{ImportedCompaction, ImportedItem};
use super::super::{ImportFormat, ImportedTranscript, detect, import_messages};

fn of(records: &[Value]) -> ImportedTranscript {
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    let bytes = lines.join("\n");
    assert_eq!(detect(bytes.as_bytes()), Ok(ImportFormat::GeminiCli));
    import_messages(ImportFormat::GeminiCli, bytes.as_bytes()).unwrap()
}

fn header() -> Value {
    json!({ "sessionId": "g1", "projectHash": "abc", "startTime": "2026-02-01T08:00:00Z",
            "directories": ["/srv/shop"] })
}

fn message(id: &str, kind: &str, content: impl Into<Value>) -> Value {
    json!({ "id": id, "timestamp": "2026-02-01T08:00:01Z", "type": kind, "content": content.into() })
}

fn with_call(mut message: Value, output: Option<&str>) -> Value {
    let mut call = json!({ "id": "c1", "name": "read_file", "args": { "file_path": "a.rs" },
                           "status": if output.is_some() { "success" } else { "executing" } });
    if let Some(output) = output {
        call["result"] = json!([{ "functionResponse": { "id": "c1", "name": "read_file",
                                                        "response": { "output": output } } }]);
    }
    message["toolCalls"] = json!([call]);
    message
}

#[test]
fn replies_of_older_qwen_code_are_read() {
    let document = json!({ "sessionId": "q1", "projectHash": "abc", "messages": [
        message("m1", "user", "read a.rs"),
        with_call(message("m2", "qwen", "I look"), Some("fn a() {}")),
        message("m3", "qwen", "done"),
    ] });
    let bytes = document.to_string();
    assert_eq!(detect(bytes.as_bytes()), Ok(ImportFormat::GeminiCli));
    let imported = import_messages(ImportFormat::GeminiCli, bytes.as_bytes()).unwrap();
    assert_eq!(roles(&imported), "user assistant toolResult assistant");
    assert_eq!(imported.problems, []);
}

#[test]
fn a_message_that_is_written_again_is_one_message() {
    let mut answered = with_call(message("m2", "gemini", "I look"), Some("fn a() {}"));
    answered["tokens"] = json!({ "input": 100, "cached": 40, "output": 5, "thoughts": 2 });
    answered["model"] = "gemini-x".into();
    answered["thoughts"] = json!([{ "subject": "Plan", "description": "read it" }]);
    let imported = of(&[
        header(),
        message("m1", "user", json!([{ "text": "read a.rs" }])),
        with_call(message("m2", "gemini", "I look"), None),
        message("n1", "info", "a note"),
        answered,
        message("m3", "gemini", "done"),
    ]);
    assert_eq!((imported.id.as_str(), imported.cwd.as_str()), ("g1", "/srv/shop"));
    assert_eq!(imported.model, Some(("google".into(), "gemini-x".into())));
    assert_eq!(roles(&imported), "user assistant toolResult assistant");
    assert_eq!(texts(&imported), ["read a.rs", "I look", "fn a() {}", "done"]);
    let reply = &messages(&imported)[1];
    assert_eq!(reply["content"][0]["thinking"], "Plan\nread it");
    assert_eq!(reply["usage"]["input"], 60);
    assert_eq!(reply["usage"]["output"], 7);
    assert_eq!(messages(&imported)[2]["toolName"], "read_file");
}

#[test]
fn a_rewind_takes_the_message_and_all_after_it_back() {
    let records = [
        header(),
        message("m1", "user", "one"),
        message("m2", "gemini", "to one"),
        message("m3", "user", "two"),
        json!({ "$rewindTo": "m3" }),
        message("m4", "user", "two again"),
    ];
    assert_eq!(texts(&of(&records)), ["one", "to one", "two again"]);
    let unknown = [&records[..2], &[json!({ "$rewindTo": "zz" })]].concat();
    let imported = of(&unknown);
    assert_eq!((texts(&imported), imported.problems[0].line), (vec!["one".to_owned()], 3));
}

#[test]
fn a_rewind_before_a_compression_restores_the_context() {
    let talk = ["m1", "m2", "m3"].map(|id| message(id, "user", id));
    let set = |text: &str, kept: &str| {
        let list = [message(text, "user", text), message(&text[1..], "user", kept)];
        json!({ "$set": { "messages": list } })
    };
    let records = [
        header(),
        talk[0].clone(),
        talk[1].clone(),
        set("first summary", "m2"),
        talk[2].clone(),
        set("second summary", "m3"),
        message("m4", "user", "m4"),
    ];
    let context = |target: &str| {
        let rewind = json!({ "$rewindTo": target });
        let next = message("m5", "user", "m5");
        let last = json!({ "$set": { "messages": [message("y1", "user", "last summary")] } });
        let imported = of(&[&records[..], &[rewind, next.clone()]].concat());
        // A later change is compared with the context that the rewind left.
        let later = of(&[&records[..], &[json!({ "$rewindTo": target }), next, last]].concat());
        assert_eq!(later.compactions.len(), imported.compactions.len() + 1, "{target}");
        let texts: Vec<String> = imported
            .compactions
            .iter()
            .flat_map(|compaction| &compaction.items)
            .filter_map(|item| match item {
                ImportedItem::Insert { text, .. } => Some(text.clone()),
                _ => None,
            })
            .collect();
        (self::texts(&imported).join(" "), texts.join(", "))
    };
    let expected = |history: &str, summaries: &str| (history.to_owned(), summaries.to_owned());
    assert_eq!(context("m4"), expected("m1 m2 m3 m5", "first summary, second summary"));
    assert_eq!(context("m3"), expected("m1 m2 m5", "first summary"));
    assert_eq!(context("m2"), expected("m1 m5", ""));
}

#[test]
fn a_rewind_brings_no_summary_back_into_a_later_context() {
    let kept = |summary: &str| {
        let list = [message("x", "user", summary), message("z", "user", "two")];
        json!({ "$set": { "messages": list } })
    };
    // The same summary again is a compaction of its own: the rewind took the first one back.
    let imported = of(&[
        header(),
        message("m1", "user", "one"),
        kept("a summary"),
        json!({ "$rewindTo": "m1" }),
        message("m2", "user", "two"),
        kept("a summary"),
    ]);
    assert_eq!((texts(&imported), imported.compactions.len()), (vec!["two".to_owned()], 1));
}

#[test]
fn a_compression_replaces_the_context_and_keeps_the_history() {
    let imported = of(&[
        header(),
        json!({ "$set": { "messages": [message("s0", "user", "<session_context>here</session_context>")] } }),
        message("m1", "user", "one"),
        message("m2", "gemini", "to one"),
        message("m3", "user", "two"),
        message("m4", "gemini", "to two"),
        json!({ "$set": { "messages": [
            message("x1", "user", "<state_snapshot>one was done</state_snapshot>"),
            message("x2", "gemini", "Understood."),
            message("x3", "user", "two"),
            message("x4", "gemini", "to two"),
        ] } }),
        message("m5", "user", "three"),
    ]);
    assert_eq!(texts(&imported)[1..], ["one", "to one", "two", "to two", "three"]);
    let [ImportedCompaction { at, items, trigger, .. }] = imported.compactions.as_slice() else {
        panic!("{:?}", imported.compactions)
    };
    let insert = |is_reply, text: &str| ImportedItem::Insert { is_reply, text: text.into() };
    assert_eq!((*at, trigger.as_str()), (5, ""));
    assert_eq!(
        *items,
        [
            insert(false, "<state_snapshot>one was done</state_snapshot>"),
            insert(true, "Understood."),
            ImportedItem::Keep(3..5),
        ]
    );
}

#[test]
fn a_cancelled_request_is_no_compaction() {
    let imported = of(&[
        header(),
        message("m1", "user", "one"),
        message("m2", "gemini", "to one"),
        message("m3", "user", "cancelled"),
        json!({ "$set": { "messages": [message("m1", "user", "one"), message("m2", "gemini", "to one")] } }),
    ]);
    assert_eq!(texts(&imported), ["one", "to one", "cancelled"]);
    assert_eq!(imported.compactions[0].trigger, "rollback");
    let metadata =
        of(&[header(), message("m1", "user", "one"), json!({ "$set": { "lastUpdated": "x" } })]);
    assert_eq!((metadata.compactions, metadata.problems), (vec![], vec![]));
}

#[test]
fn a_masked_result_keeps_its_text_in_the_history() {
    let masked = "<tool_output_masked>\nsaved to /tmp/out.txt\n</tool_output_masked>";
    let imported = of(&[
        header(),
        message("m1", "user", "read it"),
        with_call(message("m2", "gemini", ""), Some("port 5433 is open")),
        message("m3", "gemini", "read"),
        with_call(message("m2", "gemini", ""), Some(masked)),
    ]);
    assert_eq!(texts(&imported)[2], "port 5433 is open");
    assert_eq!(imported.compactions[0].trigger, "prune");
    let replaced = ImportedItem::ReplaceText { message: 2, text: masked.into() };
    assert!(imported.compactions[0].items.contains(&replaced));
}

#[test]
fn the_older_document_is_read_too() {
    let document = json!({ "sessionId": "g2", "projectHash": "h", "startTime": "t", "messages": [
        message("m1", "user", "one"), with_call(message("m2", "gemini", "look"), Some("x")), 7,
    ]});
    let text = serde_json::to_string_pretty(&document).unwrap();
    assert_eq!(detect(text.as_bytes()), Ok(ImportFormat::GeminiCli));
    let imported = import_messages(ImportFormat::GeminiCli, text.as_bytes()).unwrap();
    assert_eq!(
        (imported.id.as_str(), texts(&imported)),
        ("g2", vec!["one".into(), "look".into(), "x".into()])
    );
    assert_eq!(imported.problems.len(), 1);
}

#[test]
fn responses_in_user_messages_are_results() {
    let call = json!([{ "functionCall": { "id": "c9", "name": "glob", "args": {} } }]);
    let response = json!([{ "functionResponse": { "id": "c9", "name": "glob", "response": { "error": "no" } } }]);
    let imported = of(&[
        header(),
        message("m1", "user", "go"),
        message("m2", "gemini", call),
        message("m3", "user", response),
        json!({ "neither": 1 }),
    ]);
    assert_eq!(roles(&imported), "user assistant toolResult");
    assert_eq!(messages(&imported)[2]["isError"], true);
    assert_eq!(imported.problems.len(), 1);
}
