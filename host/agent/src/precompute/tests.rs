//! Precomputed compactions, with a scripted provider and a recording engine.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast::Receiver;

use crate::event::{EventKind, RuntimeEvent};
use crate::testing::*;
use crate::{Runtime, SessionId};
use ctxhost_context::CompactionVerdict;

/// A twentieth of the budget, which the long story exceeds.
const AHEAD: &str = "compaction.precompute_share = 0.05\n";

fn talker() -> Arc<ScriptedProvider> {
    ScriptedProvider::new(|_| Answer::Text("well".into()))
}

async fn start(name: &str, compact_ms: u64) -> (Runtime, SessionId, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let engine = RecordingEngine::spec(name, json!({ "compact_ms": compact_ms }));
    let runtime = builder(&config(AHEAD), &talker(), engine).build().await.unwrap();
    let id = session(&runtime, &folder);
    (runtime, id, folder)
}

async fn until<T>(
    events: &mut Receiver<RuntimeEvent>,
    found: impl Fn(&EventKind) -> Option<T>,
) -> T {
    let searching = async {
        loop {
            if let Some(found) = found(&events.recv().await.unwrap().kind) {
                return found;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), searching).await.unwrap()
}

async fn until_dropped(events: &mut Receiver<RuntimeEvent>) -> String {
    let dropped = |kind: &EventKind| match kind {
        EventKind::PrecomputeDropped { why } => Some(why.clone()),
        _ => None,
    };
    until(events, dropped).await
}

async fn until_precomputed(events: &mut Receiver<RuntimeEvent>) -> u64 {
    let entries = |kind: &EventKind| match kind {
        EventKind::Precomputed { entries, .. } => Some(*entries),
        _ => None,
    };
    until(events, entries).await
}

fn compactions(name: &str) -> usize {
    calls(name).iter().filter(|line| line.starts_with("compact ")).count()
}

fn story(words: usize) -> String {
    "a long story ".repeat(words)
}

/// Two stories, because the newest message is pinned: the first one is compacted after the second.
async fn send_two_stories(
    runtime: &Runtime,
    id: &SessionId,
    events: &mut Receiver<RuntimeEvent>,
    words: usize,
) {
    runtime.send(id, "hello").await.unwrap();
    runtime.send(id, &story(words)).await.unwrap();
    assert!(until_dropped(events).await.contains("saved nothing"));
    runtime.send(id, &story(words / 4)).await.unwrap();
}

#[tokio::test]
async fn a_precomputed_compaction_is_applied_without_an_engine_call() {
    let (runtime, id, _folder) = start("ahead", 0).await;
    let mut events = runtime.subscribe();
    send_two_stories(&runtime, &id, &mut events, 8_000).await;
    assert_eq!(until_precomputed(&mut events).await, 6);
    runtime.send(&id, "what else?").await.unwrap();
    // Does not fit together with the story.
    runtime.send(&id, &story(8_000)).await.unwrap();
    let applied = |kind: &EventKind| match kind {
        EventKind::Compaction(outcome) => Some(outcome.clone()),
        _ => None,
    };
    let outcome = until(&mut events, applied).await;
    assert_eq!(
        (outcome.verdict.clone(), outcome.is_precomputed),
        (CompactionVerdict::Applied, true)
    );
    assert!(outcome.after_tokens < outcome.before_tokens);
    let texts = runtime
        .with_session(&id, |session| session.view().iter().map(|e| e.text().to_owned()).collect());
    let texts: Vec<String> = texts.await.unwrap();
    assert_eq!(texts.iter().filter(|text| *text == "what else?").count(), 1, "later messages stay");
    assert_eq!(compactions("ahead"), 2, "{:?}", calls("ahead"));
}

#[tokio::test]
async fn a_precomputed_compaction_of_another_history_is_discarded() {
    let (runtime, id, _folder) = start("stale", 0).await;
    let mut events = runtime.subscribe();
    send_two_stories(&runtime, &id, &mut events, 800).await;
    until_precomputed(&mut events).await;
    let asked = compactions("stale");
    let outcomes = runtime.compact(&id, Some("the story")).await.unwrap();
    assert_eq!(outcomes[0].verdict, CompactionVerdict::Applied);
    assert!(!outcomes[0].is_precomputed, "a user's focus was not known when it was precomputed");
    assert!(runtime.undo(&id).await.unwrap());
    let outcomes = runtime.compact(&id, None).await.unwrap();
    assert_eq!(outcomes[0].verdict, CompactionVerdict::Applied);
    assert!(!outcomes[0].is_precomputed, "the history has changed");
    assert_eq!(compactions("stale"), asked + 2);
}

#[tokio::test]
async fn a_turn_cancels_a_running_precomputation() {
    let (runtime, id, _folder) = start("busy", 60_000).await;
    let mut events = runtime.subscribe();
    for words in ["hello", &story(800)] {
        runtime.send(&id, words).await.unwrap();
    }
    let started = async {
        while compactions("busy") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), started).await.unwrap();
    let turn = runtime.send(&id, "are you there?");
    tokio::time::timeout(Duration::from_secs(10), turn).await.unwrap().unwrap();
    assert_eq!(until_dropped(&mut events).await, "cancelled for a turn");
    assert!(!calls("busy").contains(&"compacted".to_owned()));
    // Nor does a shutdown wait for it.
    tokio::time::timeout(Duration::from_secs(10), runtime.shutdown()).await.unwrap();
}

#[tokio::test]
async fn nothing_is_precomputed_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let engine = RecordingEngine::spec("off ahead", json!({}));
    let runtime = builder(&config(""), &talker(), engine).build().await.unwrap();
    let id = session(&runtime, &folder);
    for words in ["hello", &story(800)] {
        runtime.send(&id, words).await.unwrap();
    }
    runtime.shutdown().await;
    assert_eq!(compactions("off ahead"), 0);
}
