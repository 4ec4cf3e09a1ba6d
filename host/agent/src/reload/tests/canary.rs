//! A canary beside the engine of the slot.

use super::following::{Host, following, path};
use super::*;
use crate::canary::{Canary, CanaryFolder, SlotState};

pub(super) fn home(host: &Host) -> CanaryFolder {
    CanaryFolder::for_config(&host.folder.path().join("state"), &path(&host.folder))
}

/// Begins a canary as another process would.
pub(super) fn begin(
    host: &Host,
    engine: &str,
    share: &str,
    guards: &[&str],
    now_ms: i64,
) -> Canary {
    let guards = guards.iter().map(|guard| guard.parse().unwrap()).collect();
    let canary = Canary::start(engine, share.parse().unwrap(), guards, 60_000, now_ms);
    let begun = home(host).update(|state| {
        state.canary = Some(canary.clone());
        Ok(())
    });
    begun.unwrap();
    canary
}

fn state(host: &Host) -> SlotState {
    home(host).read().unwrap()
}

#[tokio::test]
async fn new_sessions_are_the_canary_s_and_stay_with_it_after_a_restart() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &["illegal == 0"], 1);
    assert_eq!(host.talk.say().await, "mask", "nobody has looked yet");
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "window");
    let news = host.talk.news();
    assert!(matches!(&news[..], [EventKind::CanaryStarted { engine, .. }] if engine == "window"));
    assert_eq!(host.talk.runtime.engine(), "mask", "the slot's own engine is another one");
    let again = following(&host.folder).build().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let new = session(&again, &folder);
    assert_eq!(again.send(&new, "hello").await.unwrap().engine, "window", "from the first turn on");
    let figures = home(&host).read_metrics("window", &canary.run);
    assert_eq!((figures.turns, figures.requests, figures.sessions.len()), (2, 2, 2));
}

#[tokio::test]
async fn sessions_that_are_older_than_a_canary_are_not_its() {
    let host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &[], i64::MAX);
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "mask");
    let figures = home(&host).read_metrics("mask", &canary.run);
    assert_eq!(figures.turns, 1, "the slot's own engine is measured too, to compare");
}

#[tokio::test]
async fn a_broken_guard_rolls_back_at_once() {
    let mut host = Host::with("mask", "").await;
    begin(&host, "window", "100%", &["illegal == 0", "requests <= 1"], 1);
    host.talk.runtime.reload().await.unwrap();
    host.talk.news();
    assert_eq!(host.talk.say().await, "window");
    assert!(host.talk.news().is_empty(), "all guards hold");
    assert_eq!(host.talk.say().await, "window");
    let news = host.talk.news();
    assert!(
        matches!(&news[..], [EventKind::CanaryEnded { why, .. }]
            if why == "guard requests <= 1 is broken: 2"),
        "{news:?}"
    );
    assert_eq!(host.talk.say().await, "mask", "the session goes on with all of its history");
    let ended = state(&host).ended.unwrap();
    assert_eq!((ended.engine.as_str(), ended.promoted), ("window", false));
    assert!(state(&host).canary.is_none());
    assert_eq!(host.talk.runtime.reload().await.unwrap(), None);
    assert!(host.talk.news().is_empty(), "it is told once");
}

#[tokio::test]
async fn a_canary_that_another_process_ends_is_unseated() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window", "100%", &[], 1);
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "window");
    let ended = home(&host).update(|state| Ok(state.end(&canary.run, false, "by hand", 9)));
    assert!(ended.unwrap());
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "mask");
    let news = host.talk.news();
    assert!(
        matches!(&news[..], [_, EventKind::CanaryEnded { why, .. }] if why == "by hand"),
        "{news:?}"
    );
}

#[tokio::test]
async fn a_canary_that_does_not_open_is_rolled_back_before_it_serves() {
    let mut host = Host::with("mask", "").await;
    begin(&host, "nobody", "100%", &[], 1);
    assert!(host.talk.runtime.reload().await.is_err());
    assert_eq!(host.talk.say().await, "mask");
    assert!(matches!(&host.talk.news()[..], [EventKind::ReloadRejected { .. }]));
    assert!(state(&host).ended.unwrap().why.contains("nobody"));
}

#[tokio::test]
async fn what_went_wrong_before_a_canary_is_not_held_against_the_slot_s_own_engine() {
    let folder = tempfile::tempdir().unwrap();
    super::following::write(&folder, "mask", "");
    let talk = Talk::with(following(&folder).engine_spec(Ledger::spec("early", "panic"))).await;
    let host = Host { talk, folder };
    assert_eq!(host.talk.say().await, "legacy", "it fails before anybody counts");
    let canary = begin(&host, "window", "100%", &[], i64::MAX);
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "legacy");
    let figures = home(&host).read_metrics("ledger", &canary.run);
    assert_eq!((figures.turns, figures.failures), (1, 0));
}
