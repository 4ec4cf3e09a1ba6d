//! How long failures and crashes quarantine an engine, and in which processes.

use std::sync::Arc;

use super::*;
use crate::{
    EngineEnvironment, EngineInstance, EngineOpenError, EngineSpec, EngineTimeouts, Quarantine,
};

const MINUTE_MS: i64 = 60_000;

/// A log with a recorded clock.
fn open_log(state: &Path) -> (FailureLog, HostClock) {
    let clock = HostClock::recorded();
    clock.set(1_000 * MINUTE_MS);
    (FailureLog::new(state, QuarantineRules::default(), clock.clone()), clock)
}

fn failure(clock: &HostClock) -> QuarantineRecord {
    QuarantineRecord {
        id: "x".into(),
        bytes: Some("ab12".into()),
        operation: "assemble".into(),
        reason: "it fell over".into(),
        failed_at_ms: clock.now_ms(),
    }
}

#[test]
fn a_failure_quarantines_in_every_process_and_twice_as_long_after_the_next() {
    let state = tempfile::tempdir().unwrap();
    let (here, clock) = open_log(state.path());
    let there = FailureLog::new(state.path(), QuarantineRules::default(), clock.clone());
    assert_eq!(there.active_hold("x", "ab12"), None);
    let mut held_for = Vec::new();
    for _ in 0..10 {
        here.record_failure(&failure(&clock)).unwrap();
        let held = there.active_hold("x", "ab12").unwrap();
        held_for.push((held.held_until_ms - clock.now_ms()) / MINUTE_MS);
        clock.set(held.held_until_ms - 1);
        assert!(there.active_hold("x", "ab12").is_some(), "a moment before");
        clock.set(held.held_until_ms);
        assert_eq!(there.active_hold("x", "ab12"), None, "it may serve again");
    }
    assert_eq!(held_for, [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]);
}

#[test]
fn other_bytes_start_without_records() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    log.record_failure(&failure(&clock)).unwrap();
    assert_eq!(log.active_hold("x", "cd34"), None);
    assert_eq!(log.active_hold("y", "ab12"), None);
    assert_eq!(log.forget_other_builds("x", "cd34").unwrap().len(), 1);
    assert_eq!(log.records().unwrap(), []);
}

#[test]
fn crashes_quarantine_from_the_second_on_until_a_release() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    log.record_crash(&failure(&clock)).unwrap();
    assert_eq!(log.active_hold("x", "ab12"), None, "one may be an accident");
    assert_eq!(log.records().unwrap()[0].crashes, 1, "and is recorded nevertheless");
    log.record_crash(&failure(&clock)).unwrap();
    clock.set(i64::MAX / 2);
    let held = log.active_hold("x", "ab12").unwrap();
    assert_eq!(held.summary(), "2 crashes of a host, last in assemble: it fell over");
    assert_eq!(log.release("x").unwrap(), [held]);
    assert_eq!(log.active_hold("x", "ab12"), None);
    assert_eq!(log.release("x").unwrap(), []);
}

#[test]
fn a_swap_clears_failures_but_not_crashes() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    log.record_failure(&failure(&clock)).unwrap();
    assert_eq!(log.clear_failures("x").unwrap().len(), 1);
    assert_eq!(log.active_hold("x", "ab12"), None);
    (0..2).for_each(|_| log.record_crash(&failure(&clock)).unwrap());
    assert_eq!(log.clear_failures("x").unwrap(), []);
    assert!(log.active_hold("x", "ab12").is_some());
}

#[test]
fn old_failures_are_forgotten() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    log.record_failure(&failure(&clock)).unwrap();
    log.record_crash(&failure(&clock)).unwrap();
    clock.set(clock.now_ms() + 86_400_001);
    log.record_crash(&failure(&clock)).unwrap();
    let record = log.records().unwrap().remove(0);
    assert_eq!((record.failures, record.crashes, record.held), (0, 1, false));
}

#[test]
fn a_damaged_file_quarantines_no_engine_and_is_renamed() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    fs::create_dir_all(state.path().join("engines")).unwrap();
    let path = state.path().join("engines/quarantine.json");
    fs::write(&path, "{ not json").unwrap();
    assert!(log.records().is_err());
    assert_eq!(log.active_hold("x", "ab12"), None);
    log.record_failure(&failure(&clock)).unwrap();
    assert!(log.active_hold("x", "ab12").is_some());
    assert_eq!(fs::read_to_string(path.with_extension("json.broken")).unwrap(), "{ not json");
    fs::write(&path, r#"{"version": 99, "records": []}"#).unwrap();
    assert!(log.record_failure(&failure(&clock)).is_err(), "a newer file is not overwritten");
}

#[test]
fn concurrent_processes_lose_no_records() {
    let state = tempfile::tempdir().unwrap();
    let clock = HostClock::recorded();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (clock, state) = (clock.clone(), state.path().to_owned());
            std::thread::spawn(move || {
                let rules = QuarantineRules::default();
                let log = FailureLog::new(&state, rules, clock.clone());
                (0..5).for_each(|_| _ = log.record_failure(&failure(&clock)).unwrap());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (log, _) = open_log(state.path());
    assert_eq!(log.records().unwrap()[0].failures, 20);
}

#[test]
fn a_release_in_another_process_applies_here() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    let log = Arc::new(log);
    let quarantine = Quarantine::with_log(Some(log.clone()));
    quarantine.put(failure(&clock));
    quarantine.put(failure(&clock));
    assert_eq!(log.records().unwrap()[0].failures, 1, "one quarantine is one failure");
    clock.set(i64::MAX / 2);
    assert!(quarantine.record("x").is_some(), "time alone releases no engine that failed here");
    log.release("x").unwrap();
    assert_eq!(quarantine.record("x"), None);
    quarantine.put(failure(&clock));
    assert!(quarantine.release("x").is_some());
    assert_eq!(log.records().unwrap(), [], "a release here applies everywhere");
}

#[test]
fn another_build_releases_no_process_that_runs_the_old_one() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    let log = Arc::new(log);
    let quarantine = Quarantine::with_log(Some(log.clone()));
    quarantine.put(failure(&clock));
    assert_eq!(log.forget_other_builds("x", "cd34").unwrap().len(), 1);
    assert!(quarantine.record("x").is_some(), "the process still has the old bytes");
    log.record_failure(&failure(&clock)).unwrap();
    assert_eq!(log.clear_failures("x").unwrap().len(), 1);
    assert!(quarantine.record("x").is_some(), "it was swapped in elsewhere, not here");
    assert_eq!(log.release("x").unwrap(), [], "a release without a record counts as well");
    assert_eq!(quarantine.record("x"), None);
    quarantine.put(failure(&clock));
    assert!(quarantine.record("x").is_some(), "that release was about the failure before");
}

#[test]
fn an_engine_is_quarantined_even_if_the_log_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    // A file in the place of the folder.
    fs::write(state.path().join("engines"), "").unwrap();
    let (log, clock) = open_log(state.path());
    let quarantine = Quarantine::with_log(Some(Arc::new(log)));
    quarantine.put(failure(&clock));
    assert!(quarantine.record("x").is_some());
}

#[test]
fn without_a_log_nothing_is_written() {
    let quarantine = Quarantine::default();
    quarantine.put(failure(&HostClock::recorded()));
    assert!(quarantine.record("x").is_some());
}

#[test]
fn a_bundled_engine_is_quarantined_by_version_and_legacy_never() {
    let state = tempfile::tempdir().unwrap();
    let (log, clock) = open_log(state.path());
    let bytes = Some(format!("bundled {}", env!("CARGO_PKG_VERSION")));
    for id in ["mask", "legacy"] {
        log.record_failure(&QuarantineRecord {
            id: id.into(),
            bytes: bytes.clone(),
            ..failure(&clock)
        })
        .unwrap();
    }
    let mut environment = EngineEnvironment::new(EngineTimeouts::default(), clock);
    environment.failure_log = Some(Arc::new(log));
    let open =
        |id| EngineInstance::open(&EngineSpec::bundled(id, serde_json::json!({})), &environment);
    let error = open("mask").unwrap_err();
    assert!(matches!(error, EngineOpenError::Quarantined { .. }), "{error}");
    assert!(error.to_string().contains("`ctxhost engines release mask`"), "{error}");
    assert!(open("legacy").is_ok());
}
