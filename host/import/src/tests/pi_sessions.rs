//! Session files of ctxhost, which are in Pi's format.

use std::path::{Path, PathBuf};

use ctxhost_session::{RecordBody, Session};
use serde_json::{Value, json};

use super::super::open_file;

/// A session file with nine records and the files that the host keeps beside it; the compaction is on line 6.
fn written(folder: &Path) -> PathBuf {
    let path = folder.join("s.jsonl");
    let mut session = Session::create(&path, "/home/dev", Some("mine")).unwrap();
    add_messages(&mut session, 1..=4);
    let kept = session.leaf().unwrap().id().to_owned();
    let compaction = json!({
        "type": "compaction", "id": "cccccccc", "parentId": kept, "timestamp": "2026-11-21T01:41:21.054Z",
        "summary": "so far", "firstKeptEntryId": kept, "tokensBefore": 9,
    });
    let lines = format!("{}\n{compaction}\n", session.header().line());
    let other = Session::parse("other", lines.as_bytes()).unwrap();
    session.append_copy(&other.records()[0]).unwrap();
    add_messages(&mut session, 5..=8);
    path
}

fn add_messages(session: &mut Session, numbers: std::ops::RangeInclusive<usize>) {
    for number in numbers {
        let message = json!({ "role": "user", "content": format!("{number}: naïve 你好 🙂") });
        session.append(RecordBody::from_message(&message).unwrap()).unwrap();
    }
}

#[test]
fn recordings_are_read_with_any_files_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    assert!(folder.path().read_dir().unwrap().count() > 1);
    assert_eq!(open_file(&path).unwrap().session.records().len(), 9);
}

#[test]
fn an_error_for_a_damaged_header_names_the_repair() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let text = std::fs::read_to_string(&path).unwrap().replacen("\"version\"", "\"versi\u{7}n", 1);
    std::fs::write(&path, text).unwrap();
    let error = open_file(&path).unwrap_err().to_string();
    assert!(error.contains("line 1: not JSON from column"), "{error}");
    assert!(error.contains("9 records below it"), "{error}");
    assert!(error.contains("`ctxhost fsck --repair"), "{error}");
}

#[test]
fn the_window_of_a_recording_survives_its_export() {
    let line = |kind: &str, payload: Value| {
        json!({ "timestamp": "2026-11-10T11:00:00.000Z", "type": kind, "payload": payload })
            .to_string()
    };
    let meta = json!({ "id": "a", "timestamp": "2026-11-10T11:00:00.000Z", "cwd": "/w" });
    let content = json!([{ "type": "input_text", "text": "hi" }]);
    let message = json!({ "type": "message", "role": "user", "content": content });
    let count = json!({ "type": "token_count", "info": { "model_context_window": 128_000 } });
    let lines =
        [line("session_meta", meta), line("response_item", message), line("event_msg", count)];
    let recorded = crate::open_bytes("rollout.jsonl", lines.join("\n").as_bytes()).unwrap();
    assert_eq!(recorded.window_tokens, Some(128_000));
    let bytes = recorded.into_session_with_window().unwrap().to_bytes();
    let exported = crate::open_bytes("s.jsonl", &bytes).unwrap();
    assert_eq!(exported.window_tokens, Some(128_000));
    let again = exported.into_session_with_window().unwrap().to_bytes();
    assert_eq!(again, bytes, "it is recorded once");
}
