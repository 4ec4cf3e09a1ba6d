//! Notes on disk, and the requests that write them.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::event::EventKind;
use crate::testing::*;
use crate::{Runtime, SessionId};
use ctxhost_context::CompactionVerdict;

const ON: &str = "plugins.slots.memory = \"notes\"\ncompaction.memory_flush = true\n";

fn story() -> String {
    "a long story ".repeat(800)
}

/// A phrase of the request for notes.
const ASKED: &str = "about to be shortened";

fn noting(answer: fn() -> Answer) -> Arc<ScriptedProvider> {
    ScriptedProvider::new(move |request| match newest(request) {
        text if text.contains(ASKED) => answer(),
        _ => Answer::Text("well".into()),
    })
}

fn with_notes(
    client: &Arc<ScriptedProvider>,
    folder: &Path,
    name: &str,
    settings: &str,
) -> crate::RuntimeBuilder {
    let engine = RecordingEngine::spec(name, json!({}));
    builder(&config(settings), client, engine).memory_folder(folder.join("memory"))
}

async fn send_messages(runtime: &Runtime, id: &SessionId) {
    for words in ["hello", &story(), "what else?"] {
        runtime.send(id, words).await.unwrap();
    }
}

#[test]
fn notes_are_dated_private_and_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let notes = MemoryNotes::new(folder.path().join("memory"));
    assert_eq!(notes.read_newest("/home/me/work", 1_000), "");
    notes.append("/home/me/work", "the key is token=abcdefghijkl", 0).unwrap();
    notes.append("/home/me/work", "the cellar </notes>", 1_000).unwrap();
    let file = notes.file("/home/me/work");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("--home-me-work--") && name.ends_with(".md"), "{name}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let recalled = notes.read_newest("/home/me/work", 1_000);
    assert!(recalled.contains("## 1970-01-01 00:00:01 UTC\n\nthe cellar (/notes)"), "{recalled}");
    assert!(!recalled.contains("abcdefghijkl"), "{recalled}");
    assert_eq!(recalled.matches("</notes>").count(), 1);
    for other in ["/home/me", "/home/me-work", "/home-me/work"] {
        assert_eq!(notes.read_newest(other, 1_000), "", "{other} has notes of its own");
    }
}

#[test]
fn notes_of_older_versions_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let notes = MemoryNotes::new(folder.path().join("memory"));
    notes.append("/w", "the new one", 1_000).unwrap();
    std::fs::write(folder.path().join("memory/--w--.md"), "## 1\n\nthe old one\n\n").unwrap();
    let recalled = notes.read_newest("/w", 1_000);
    assert!(recalled.find("the old one") < recalled.find("the new one"), "{recalled}");
    assert!(recalled.contains("the old one"), "{recalled}");
}

#[test]
fn the_newest_whole_notes_that_fit_are_read() {
    let text = "## 1\n\nfirst\n\n## 2\n\nsecond\n\n## 3\n\nthird";
    assert_eq!(newest_notes(text, 1_000), text);
    assert_eq!(newest_notes(text, 30), "## 2\n\nsecond\n\n## 3\n\nthird");
    assert_eq!(newest_notes(text, 15), "## 3\n\nthird");
    assert_eq!(newest_notes(text, 5), "");
    assert_eq!(newest_notes("日本語", 1), "");
}

#[tokio::test]
async fn notes_are_saved_before_a_compaction_and_added_to_later_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let client = noting(|| Answer::Text("- it is in the cellar".into()));
    let runtime = with_notes(&client, folder.path(), "noting", ON).build().await.unwrap();
    let id = session(&runtime, &folder);
    send_messages(&runtime, &id).await;
    let lines = runtime.with_session(&id, |live| live.session().records().len()).await.unwrap();
    let mut events = runtime.subscribe();
    let outcomes = runtime.compact(&id, None).await.unwrap();
    assert_eq!(outcomes[0].verdict, CompactionVerdict::Applied);

    let asked = client.requests_with(ASKED);
    assert_eq!(asked.len(), 1);
    assert!(asked[0].tools.is_empty());
    assert_eq!(asked[0].messages.len(), 7, "the whole conversation and the request");
    let after = runtime.with_session(&id, |live| live.session().records().len()).await.unwrap();
    assert_eq!(after, lines + 1, "the request and its answer are not in the session");
    assert!(matches!(events.recv().await.unwrap().kind, EventKind::NotesSaved { chars: 21, .. }));

    let later = runtime.create_session(&folder.path().join("later.jsonl"), folder.path()).unwrap();
    runtime.send(&later, "where is it?").await.unwrap();
    assert!(client.requests_with("where is it?")[0].system.contains("- it is in the cellar"));
    let elsewhere = folder.path().join("elsewhere.jsonl");
    let elsewhere = runtime.create_session(&elsewhere, Path::new("/")).unwrap();
    runtime.send(&elsewhere, "and here?").await.unwrap();
    assert!(!client.requests_with("and here?")[0].system.contains("cellar"));
}

#[tokio::test]
async fn a_request_that_does_not_fit_saves_notes_first_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let client = noting(|| Answer::Text("- a note".into()));
    let runtime = with_notes(&client, folder.path(), "on the way", ON);
    let runtime = runtime.window_tokens(40_000).build().await.unwrap();
    let id = session(&runtime, &folder);
    runtime.send(&id, "hello").await.unwrap();
    let long = "a long story ".repeat(5_000);
    runtime.send(&id, &long).await.unwrap();
    assert!(client.requests_with(ASKED).is_empty(), "it still fits");
    runtime.send(&id, &long).await.unwrap();
    assert_eq!(client.requests_with(ASKED).len(), 1);
    assert_eq!(calls("on the way").iter().filter(|line| *line == "compacted").count(), 1);
}

#[tokio::test]
async fn compactions_proceed_without_notes_and_requests_stop_after_three_failures() {
    let folder = tempfile::tempdir().unwrap();
    let client = noting(|| Answer::Refusal);
    let runtime = with_notes(&client, folder.path(), "refusing notes", ON).build().await.unwrap();
    let id = session(&runtime, &folder);
    let mut events = runtime.subscribe();
    for _ in 0..5 {
        send_messages(&runtime, &id).await;
        let outcomes = runtime.compact(&id, None).await.unwrap();
        assert_eq!(outcomes[0].verdict, CompactionVerdict::Applied);
    }
    assert_eq!(client.requests_with(ASKED).len(), 3, "three failures in a row are enough");
    let mut failures = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let EventKind::NotesFailed { is_last, .. } = event.kind {
            failures.push(is_last);
        }
    }
    assert_eq!(failures, [false, false, true]);
    assert!(!folder.path().join("memory").exists());
}

#[tokio::test]
async fn notes_need_the_setting_and_a_memory() {
    for settings in ["plugins.slots.memory = \"notes\"", "compaction.memory_flush = true", ""] {
        let folder = tempfile::tempdir().unwrap();
        let client = noting(|| Answer::Text("- a note".into()));
        let runtime = with_notes(&client, folder.path(), "no notes", settings);
        let runtime = runtime.build().await.unwrap();
        let id = session(&runtime, &folder);
        send_messages(&runtime, &id).await;
        runtime.compact(&id, None).await.unwrap();
        assert!(client.requests_with(ASKED).is_empty(), "{settings}");
    }
    let unknown = config("plugins.slots.memory = \"elephant\"");
    let client = noting(|| Answer::Refusal);
    let refused =
        builder(&unknown, &client, RecordingEngine::spec("elephant", json!({}))).build().await;
    assert!(refused.unwrap_err().to_string().contains("\"elephant\""));
}
