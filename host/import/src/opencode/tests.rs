//! opencode sessions: parts, summaries, cleared results, the files of its storage.

use std::path::Path;

use serde_json::{Value, json};

use super::super::open::open_file;
use super::super::tests::{messages, roles, texts};
use super::super::transcript::ImportedItem;
use super::super::{ImportFormat, ImportedTranscript, detect, import_messages};

fn session() -> Value {
    json!({ "id": "ses_1", "projectID": "p", "directory": "/srv/shop", "version": "1.2.3",
            "time": { "created": 1_000 } })
}

fn of(messages: &[Value]) -> ImportedTranscript {
    let document = json!({ "info": session(), "messages": messages }).to_string();
    assert_eq!(detect(document.as_bytes()), Ok(ImportFormat::OpenCode));
    import_messages(ImportFormat::OpenCode, document.as_bytes()).unwrap()
}

fn user(number: i64, text: &str) -> Value {
    json!({ "info": { "id": format!("msg_{number}"), "role": "user", "time": { "created": number } },
            "parts": [{ "id": "prt_1", "type": "text", "text": text }] })
}

fn reply(number: i64, parts: &[Value]) -> Value {
    json!({ "info": { "id": format!("msg_{number}"), "role": "assistant", "time": { "created": number },
                      "providerID": "anthropic", "modelID": "claude-x",
                      "tokens": { "input": 10, "output": 3, "reasoning": 1, "cache": { "read": 7, "write": 2 } } },
            "parts": parts })
}

fn text(text: &str) -> Value {
    json!({ "id": "prt_5", "type": "text", "text": text })
}

fn tool(id: &str, output: &str, cleared_ms: Option<i64>) -> Value {
    json!({ "id": "prt_6", "type": "tool", "callID": id, "tool": "read",
            "state": { "status": "completed", "input": { "path": "a" }, "output": output,
                       "time": { "start": 1, "end": 2, "compacted": cleared_ms } } })
}

fn marker(number: i64, tail: Option<&str>) -> Value {
    json!({ "info": { "id": format!("msg_{number}"), "role": "user", "time": { "created": number } },
            "parts": [{ "id": "prt_1", "type": "compaction", "auto": true, "tail_start_id": tail }] })
}

fn summary(number: i64, parent: i64, words: &str) -> Value {
    let mut summary = reply(number, &[text(words)]);
    summary["info"]["summary"] = true.into();
    summary["info"]["finish"] = "stop".into();
    summary["info"]["parentID"] = format!("msg_{parent}").into();
    summary
}

#[test]
fn the_parts_of_a_message() {
    let imported = of(&[
        user(1, "read a"),
        reply(
            2,
            &[
                json!({ "id": "prt_1", "type": "step-start" }),
                json!({ "id": "prt_2", "type": "reasoning", "text": "hm" }),
                text("I look"),
                tool("c1", "text of a", None),
            ],
        ),
        reply(3, &[text("done")]),
    ]);
    assert_eq!((imported.id.as_str(), imported.cwd.as_str()), ("ses_1", "/srv/shop"));
    assert_eq!(imported.agent_version, "1.2.3");
    assert_eq!(imported.model, Some(("anthropic".into(), "claude-x".into())));
    assert_eq!(roles(&imported), "user assistant toolResult assistant");
    let reply = &messages(&imported)[1];
    let kinds: Vec<&Value> =
        reply["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "toolCall"]);
    assert_eq!(reply["usage"]["cacheRead"], 7);
    assert_eq!(reply["usage"]["output"], 4);
    assert_eq!(imported.problems, []);
}

#[test]
fn text_that_opencode_adds_to_a_prompt_is_not_the_users() {
    let injected = json!({ "id": "prt_2", "type": "text", "synthetic": true,
        "text": "Called the Read tool with the following input: {}" });
    let mut asked = user(1, "fix a.rs");
    asked["parts"].as_array_mut().unwrap().push(injected.clone());
    let mut alone = user(3, "");
    alone["parts"] = json!([injected]);
    let imported = of(&[asked, reply(2, &[text("done")]), alone]);
    let requests: Vec<String> = texts(&imported);
    let of_user =
        requests.iter().map(|text| ctxhost_text::injected_text::user_text(text).into_owned());
    assert_eq!(of_user.collect::<Vec<_>>(), ["fix a.rs", "done", ""]);
    assert!(requests.iter().all(|text| !text.starts_with("Called")), "{requests:?}");
    assert!(requests[0].contains("Called the Read tool"), "the model saw it");
}

#[test]
fn a_summary_replaces_what_is_before_its_tail() {
    let imported = of(&[
        user(1, "one"),
        reply(2, &[text("to one")]),
        user(3, "two"),
        reply(4, &[text("to two")]),
        marker(5, Some("msg_3")),
        summary(6, 5, "one was done"),
        user(7, "three"),
    ]);
    assert_eq!(texts(&imported), ["one", "to one", "two", "to two", "three"]);
    let compaction = &imported.compactions[0];
    assert_eq!(
        (compaction.at, compaction.trigger.as_str(), compaction.tokens_before),
        (4, "auto", 19)
    );
    let summary = ImportedItem::Insert { is_reply: true, text: "one was done".into() };
    assert_eq!(compaction.items, [summary, ImportedItem::Keep(2..4)]);
}

#[test]
fn a_summary_that_failed_changed_nothing() {
    let mut failed = summary(6, 5, "half of it");
    failed["info"]["error"] = json!({ "name": "MessageAbortedError" });
    let imported = of(&[user(1, "one"), reply(2, &[text("to one")]), marker(5, None), failed]);
    assert_eq!((texts(&imported).len(), imported.compactions), (2, vec![]));
}

#[test]
fn results_are_cleared_when_their_time_says() {
    let imported = of(&[
        user(1, "one"),
        reply(2, &[tool("c1", "first", Some(50))]),
        reply(3, &[tool("c2", "second", Some(51)), text("read")]),
        user(100, "two"),
    ]);
    assert_eq!(texts(&imported)[2], "first");
    let [compaction] = imported.compactions.as_slice() else {
        panic!("{:?}", imported.compactions)
    };
    assert_eq!((compaction.at, compaction.trigger.as_str()), (5, "prune"));
    let cleared = |item: &&ImportedItem| matches!(item, ImportedItem::ReplaceText { .. });
    assert_eq!(compaction.items.iter().filter(cleared).count(), 2);
}

#[test]
fn what_was_reverted_is_gone_and_what_is_wrong_is_noted() {
    let mut document = json!({ "info": session(), "messages": [user(1, "one"), user(2, "two"), 7,
        { "info": { "role": "robot" }, "parts": [] }] });
    document["info"]["revert"] = json!({ "messageID": "msg_2" });
    let imported =
        import_messages(ImportFormat::OpenCode, document.to_string().as_bytes()).unwrap();
    assert_eq!(texts(&imported), ["one"]);
    assert_eq!(imported.problems.len(), 2);
}

fn write(path: &Path, value: &Value) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
}

#[test]
fn a_session_file_of_the_storage_brings_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("storage");
    let path = storage.join("session/p/ses_1.json");
    write(&path, &session());
    for message in [user(1, "one"), reply(2, &[text("to one"), tool("c1", "x", None)])] {
        let id = message["info"]["id"].as_str().unwrap();
        write(&storage.join(format!("message/ses_1/{id}.json")), &message["info"]);
        for part in message["parts"].as_array().unwrap() {
            let part_id = part["id"].as_str().unwrap();
            write(&storage.join(format!("part/{id}/{part_id}.json")), part);
        }
    }
    std::fs::write(storage.join("part/msg_1/prt_9.json"), "{").unwrap();
    let opened = open_file(&path).unwrap();
    assert_eq!(opened.format, "opencode");
    let entries = opened.session.live(0).snapshot();
    assert_eq!(
        entries.iter().map(|entry| entry.text().to_owned()).collect::<Vec<_>>(),
        ["one", "to one", "x"]
    );
    assert_eq!(opened.problems.len(), 1);
    // Links would lead out of the storage.
    #[cfg(unix)]
    {
        let outside = folder.path().join("outside.json");
        write(&outside, &json!({ "type": "text", "text": "private" }));
        std::os::unix::fs::symlink(&outside, storage.join("part/msg_1/prt_2.json")).unwrap();
        assert_eq!(open_file(&path).unwrap().session.live(0).len(), 3);
    }
    // Without its messages it is no recording.
    let alone = folder.path().join("alone.json");
    write(&alone, &session());
    assert!(open_file(&alone).unwrap_err().to_string().contains("unknown recording format"));
}
