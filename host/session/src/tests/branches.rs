//! Several branches in one session.

use super::*;
use crate::{RecordKind, SessionError};

#[test]
fn a_branch_is_what_leads_to_the_leaf() {
    let mut session = memory();
    talk(&mut session, 3);
    let ids: Vec<String> = session.records().iter().map(|record| record.id().to_owned()).collect();
    session.set_leaf(&ids[0]).unwrap();
    session.append(user("another way")).unwrap();
    assert_eq!(texts(&session), ["message 1", "another way"]);
    assert_eq!(session.branch().len(), 2);
    assert_eq!(session.leaves().len(), 2);

    session.set_leaf(&ids[2]).unwrap();
    assert_eq!(texts(&session), ["message 1", "message 2", "message 3"]);
    assert!(matches!(session.set_leaf("nowhere"), Err(SessionError::UnknownRecord { .. })));

    let again = Session::parse("again", &session.to_bytes()).unwrap();
    assert_eq!(texts(&again), ["message 1", "another way"], "the leaf is the last line");
}

#[test]
fn each_branch_has_its_own_first_task() {
    let mut session = memory();
    let root = session.append(RecordBody::model_change("p", "m")).unwrap();
    let first = session.append(user("one")).unwrap();
    session.set_leaf(&root).unwrap();
    let second = session.append(user("two")).unwrap();
    let is_pinned = |session: &Session, id: &str| {
        let of_live = seen(&session.live(0)).into_iter().find(|entry| entry.id == id);
        let of_entry = session.entry(id).unwrap().flags.contains(Flags::PINNED);
        assert!(of_live.is_none_or(|entry| entry.flags.contains(Flags::PINNED) == of_entry));
        of_entry
    };
    assert!(is_pinned(&session, &second) && !is_pinned(&session, &first));
    session.set_leaf(&first).unwrap();
    assert!(is_pinned(&session, &first) && !is_pinned(&session, &second));
}

#[test]
fn live_is_what_a_runtime_would_append() {
    let mut session = memory();
    let mut log = TranscriptLog::new(0);
    for body in [
        message(
            serde_json::json!({ "role": "system", "content": "rules", "sections": { "a": "more", "b": null } }),
        ),
        user("task"),
        RecordBody::label("x", Some("mark")),
        message(serde_json::json!({ "role": "assistant", "stopReason": "toolUse", "content": [
            { "type": "toolCall", "id": "c1", "name": "read", "arguments": { "path": "a.rs" } } ] })),
        message(serde_json::json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "read",
            "isError": true, "content": [{ "type": "text", "text": "no such file" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" }] })),
        message(
            serde_json::json!({ "role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0 }),
        ),
        message(serde_json::json!({ "role": "bashExecution", "command": "secret", "output": "",
            "excludeFromContext": true })),
        message(
            serde_json::json!({ "role": "user", "content": "hidden", "excludeFromContext": true }),
        ),
        RecordBody::custom_message("note", "from an extension", true),
        RecordBody::custom("state", &serde_json::json!({ "n": 1 })),
        RecordBody::branch_summary("abcd", "tried another way"),
        assistant("done"),
    ] {
        let id = session.append_at(body, 7).unwrap();
        if let Some(entry) = session.entry(&id) {
            log.append(entry);
        }
    }
    assert_eq!(seen(&session.live(0)), seen(&log));

    let entries = seen(&log);
    let shape: Vec<_> = entries.iter().map(|entry| (entry.role, entry.kind)).collect();
    assert_eq!(
        shape,
        [
            (Role::System, EntryKind::Message),
            (Role::User, EntryKind::Message),
            (Role::Assistant, EntryKind::Message),
            (Role::Tool, EntryKind::Message),
            (Role::User, EntryKind::Bash),
            (Role::User, EntryKind::Custom),
            (Role::User, EntryKind::BranchSummary),
            (Role::Assistant, EntryKind::Message),
        ]
    );
    assert_eq!(entries[0].text, "rules\nmore");
    assert!(entries[0].flags.contains(Flags::PINNED) && entries[1].flags.contains(Flags::PINNED));
    assert!(entries[3].flags.contains(Flags::ERROR.with(Flags::IMAGES)));
    assert!(entries[3].tokens >= 2_000);
    assert_eq!(entries[3].frame, 2);
    assert_eq!(entries[5].text, "from an extension");
    assert!(entries[6].text.contains("<summary source=\"branch abcd, entry "));
    assert!(entries[6].flags.contains(Flags::SYNTHETIC));
}

#[test]
fn the_newest_edit_of_the_branch_counts() {
    let mut session = memory();
    talk(&mut session, 3);
    let ids: Vec<String> = session.records().iter().map(|record| record.id().to_owned()).collect();
    let edit = |target: &str, replacement: serde_json::Value| {
        let value = serde_json::json!({ "type": "context_edit", "targetId": target, "replacement": replacement });
        RecordBody::from_value(&value).unwrap()
    };
    let before = session.leaf().unwrap().id().to_owned();
    session.append(edit(&ids[1], serde_json::Value::Null)).unwrap();
    session.append(edit(&ids[2], serde_json::json!({ "content": "first" }))).unwrap();
    session.append(edit(&ids[2], serde_json::json!({ "content": "edited" }))).unwrap();
    assert_eq!(texts(&session), ["message 1", "edited"]);
    assert!(seen(&session.live(0))[1].flags.contains(Flags::REPLACED));
    session.set_leaf(&before).unwrap();
    assert_eq!(texts(&session), ["message 1", "message 2", "message 3"]);
}

#[test]
fn the_newest_model_of_the_branch_counts() {
    let header = r#"{"type":"session","id":"s","provider":"old","modelId":"old-1"}"#;
    let mut session = Session::parse("v1", header.as_bytes()).unwrap();
    let model =
        |session: &Session| session.model().map(|(provider, id)| format!("{provider}/{id}"));
    assert_eq!(model(&session).as_deref(), Some("old/old-1"));
    session.append(assistant("hello")).unwrap();
    assert_eq!(model(&session).as_deref(), Some("p/m"));
    session.append(RecordBody::model_change("q", "n")).unwrap();
    session.append(user("and?")).unwrap();
    assert_eq!(model(&session).as_deref(), Some("q/n"));
    assert_eq!(session.records().last().unwrap().kind(), &RecordKind::Message);
}
