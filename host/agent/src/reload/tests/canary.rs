//! Canaries of a running host.

use super::config_changes::{Host, path, watching_builder};
use super::*;
use crate::canary::{Canary, CanaryFolder, SlotState};

pub(super) fn canary_folder(host: &Host) -> CanaryFolder {
    CanaryFolder::for_config(&host.folder.path().join("state"), &path(&host.folder))
}

/// Starts a canary as another process would.
pub(super) fn begin(
    host: &Host,
    engine: &str,
    share: &str,
    guards: &[&str],
    now_ms: i64,
) -> Canary {
    let guards = guards.iter().map(|guard| guard.parse().unwrap()).collect();
    let canary = Canary::start(engine, share.parse().unwrap(), guards, 60_000, now_ms);
    let started = canary_folder(host).update(|state| {
        state.canary = Some(canary.clone());
        Ok(())
    });
    started.unwrap();
    canary
}

fn state(host: &Host) -> SlotState {
    canary_folder(host).read().unwrap()
}

#[tokio::test]
async fn new_sessions_are_served_by_the_canary_across_restarts() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &["violations == 0"], 1);
    assert_eq!(host.agent.send().await, "mask", "not reloaded yet");
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "window");
    let events = host.agent.engine_events();
    assert!(matches!(&events[..], [EventKind::CanaryStarted { engine, .. }] if engine == "window"));
    assert_eq!(host.agent.runtime.engine(), "mask", "the current engine is another one");
    let restarted = watching_builder(&host.folder).build().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = session(&restarted, &folder);
    assert_eq!(
        restarted.send(&new, "hello").await.unwrap().engine,
        "window",
        "from the first turn on"
    );
    let totals = canary_folder(&host).read_metrics("window", &canary.run);
    assert_eq!((totals.sum.turns, totals.sum.engine_us.len(), totals.sessions.len()), (2, 2, 2));
}

#[tokio::test]
async fn older_sessions_are_not_served_by_the_canary() {
    let host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &[], i64::MAX);
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "mask");
    let totals = canary_folder(&host).read_metrics("mask", &canary.run);
    assert_eq!(totals.sum.turns, 1, "the current engine is measured too, to compare");
}

#[tokio::test]
async fn a_broken_guard_rolls_back() {
    let mut host = Host::with("mask", "").await;
    begin(&host, "window", "100%", &["violations == 0", "requests <= 1"], 1);
    host.agent.runtime.reload().await.unwrap();
    host.agent.engine_events();
    assert_eq!(host.agent.send().await, "window");
    assert!(host.agent.engine_events().is_empty(), "all guards hold");
    assert_eq!(host.agent.send().await, "window");
    let events = host.agent.engine_events();
    assert!(
        matches!(&events[..], [EventKind::CanaryEnded { why, .. }]
            if why == "guard requests <= 1 is broken: 2"),
        "{events:?}"
    );
    assert_eq!(host.agent.send().await, "mask", "the session continues with its whole history");
    let ended = state(&host).ended.unwrap();
    assert_eq!((ended.engine.as_str(), ended.promoted), ("window", false));
    assert!(state(&host).canary.is_none());
    assert_eq!(host.agent.runtime.reload().await.unwrap(), None);
    assert!(host.agent.engine_events().is_empty(), "reported once");
}

#[tokio::test]
async fn a_canary_ended_by_another_process_is_removed() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &[], 1);
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "window");
    let ended =
        canary_folder(&host).update(|state| Ok(state.end(&canary.run, false, "by hand", 9)));
    assert!(ended.unwrap());
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "mask");
    let events = host.agent.engine_events();
    assert!(
        matches!(&events[..], [_, EventKind::CanaryEnded { why, .. }] if why == "by hand"),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_canary_that_does_not_open_is_rolled_back_before_it_serves() {
    let mut host = Host::with("mask", "").await;
    begin(&host, "unknown", "100%", &[], 1);
    assert!(host.agent.runtime.reload().await.is_err());
    assert_eq!(host.agent.send().await, "mask");
    assert!(matches!(&host.agent.engine_events()[..], [EventKind::ReloadRejected { .. }]));
    assert!(state(&host).ended.unwrap().why.contains("unknown"));
}

#[tokio::test]
async fn earlier_failures_are_not_part_of_the_comparison() {
    let folder = tempfile::tempdir().unwrap();
    super::config_changes::write(&folder, "mask", "");
    let agent = TestAgent::with(
        watching_builder(&folder).engine_spec(CountingEngine::spec("early", "panic")),
    )
    .await;
    let host = Host { agent, folder };
    assert_eq!(host.agent.send().await, "legacy", "it fails before the canary starts");
    let canary = begin(&host, "window", "100%", &[], i64::MAX);
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "legacy");
    let totals = canary_folder(&host).read_metrics("ledger", &canary.run);
    assert_eq!((totals.sum.turns, totals.sum.failures), (1, 0));
}
