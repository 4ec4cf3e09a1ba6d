//! The book of failures: what holds, for how long, and who sees it.

use std::sync::Arc;

use super::*;
use crate::{
    EngineEnvironment, EngineInstance, EngineOpenError, EngineSpec, EngineTimeouts, Quarantine,
};

const MINUTE_MS: i64 = 60_000;

/// A book on a clock that stands where it is set.
fn book(state: &Path) -> (FailureLog, HostClock) {
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
fn a_failure_holds_in_every_process_and_twice_as_long_after_the_next() {
    let state = tempfile::tempdir().unwrap();
    let (here, clock) = book(state.path());
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
fn other_bytes_begin_with_a_clean_sheet() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    book.record_failure(&failure(&clock)).unwrap();
    assert_eq!(book.active_hold("x", "cd34"), None);
    assert_eq!(book.active_hold("y", "ab12"), None);
    assert_eq!(book.forget_other_builds("x", "cd34").unwrap().len(), 1);
    assert_eq!(book.records().unwrap(), []);
}

#[test]
fn crashes_hold_from_the_second_on_until_somebody_releases() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    book.record_crash(&failure(&clock)).unwrap();
    assert_eq!(book.active_hold("x", "ab12"), None, "one may be an accident");
    assert_eq!(book.records().unwrap()[0].crashes, 1, "and is known all the same");
    book.record_crash(&failure(&clock)).unwrap();
    clock.set(i64::MAX / 2);
    let held = book.active_hold("x", "ab12").unwrap();
    assert_eq!(held.summary(), "2 crashes of a host, last in assemble: it fell over");
    assert_eq!(book.release("x").unwrap(), [held]);
    assert_eq!(book.active_hold("x", "ab12"), None);
    assert_eq!(book.release("x").unwrap(), []);
}

#[test]
fn a_swap_excuses_failures_and_no_crash() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    book.record_failure(&failure(&clock)).unwrap();
    assert_eq!(book.clear_failures("x").unwrap().len(), 1);
    assert_eq!(book.active_hold("x", "ab12"), None);
    (0..2).for_each(|_| book.record_crash(&failure(&clock)).unwrap());
    assert_eq!(book.clear_failures("x").unwrap(), []);
    assert!(book.active_hold("x", "ab12").is_some());
}

#[test]
fn what_is_long_ago_counts_no_more() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    book.record_failure(&failure(&clock)).unwrap();
    book.record_crash(&failure(&clock)).unwrap();
    clock.set(clock.now_ms() + 86_400_001);
    book.record_crash(&failure(&clock)).unwrap();
    let record = book.records().unwrap().remove(0);
    assert_eq!((record.failures, record.crashes, record.held), (0, 1, false));
}

#[test]
fn a_file_that_is_no_book_holds_nobody_and_is_put_aside() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    fs::create_dir_all(state.path().join("engines")).unwrap();
    let path = state.path().join("engines/quarantine.json");
    fs::write(&path, "{ this is no").unwrap();
    assert!(book.records().is_err());
    assert_eq!(book.active_hold("x", "ab12"), None);
    book.record_failure(&failure(&clock)).unwrap();
    assert!(book.active_hold("x", "ab12").is_some());
    assert_eq!(fs::read_to_string(path.with_extension("json.broken")).unwrap(), "{ this is no");
    fs::write(&path, r#"{"version": 99, "records": []}"#).unwrap();
    assert!(book.record_failure(&failure(&clock)).is_err(), "a newer file is not written over");
}

#[test]
fn two_processes_lose_nothing_of_what_they_write() {
    let state = tempfile::tempdir().unwrap();
    let clock = HostClock::recorded();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (clock, state) = (clock.clone(), state.path().to_owned());
            std::thread::spawn(move || {
                let rules = QuarantineRules::default();
                let book = FailureLog::new(&state, rules, clock.clone());
                (0..5).for_each(|_| _ = book.record_failure(&failure(&clock)).unwrap());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (book, _) = book(state.path());
    assert_eq!(book.records().unwrap()[0].failures, 20);
}

#[test]
fn who_is_released_elsewhere_serves_again_here() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    let book = Arc::new(book);
    let quarantine = Quarantine::with_log(Some(book.clone()));
    quarantine.put(failure(&clock));
    quarantine.put(failure(&clock));
    assert_eq!(book.records().unwrap()[0].failures, 1, "one quarantine is one failure");
    clock.set(i64::MAX / 2);
    assert!(quarantine.record("x").is_some(), "time alone brings no broken engine back");
    book.release("x").unwrap();
    assert_eq!(quarantine.record("x"), None);
    quarantine.put(failure(&clock));
    assert!(quarantine.release("x").is_some());
    assert_eq!(book.records().unwrap(), [], "who lets it out here lets it out everywhere");
}

#[test]
fn another_build_brings_none_back_where_the_old_one_runs() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    let book = Arc::new(book);
    let quarantine = Quarantine::with_log(Some(book.clone()));
    quarantine.put(failure(&clock));
    assert_eq!(book.forget_other_builds("x", "cd34").unwrap().len(), 1);
    assert!(quarantine.record("x").is_some(), "the process still has the old bytes");
    book.record_failure(&failure(&clock)).unwrap();
    assert_eq!(book.clear_failures("x").unwrap().len(), 1);
    assert!(quarantine.record("x").is_some(), "somebody else swapped it in, not here");
    assert_eq!(book.release("x").unwrap(), [], "nothing is held, and yet somebody's word");
    assert_eq!(quarantine.record("x"), None);
    quarantine.put(failure(&clock));
    assert!(quarantine.record("x").is_some(), "that word was about the failure before");
}

#[test]
fn what_cannot_be_written_down_is_held_all_the_same() {
    let state = tempfile::tempdir().unwrap();
    // A file stands where the folder should be.
    fs::write(state.path().join("engines"), "").unwrap();
    let (book, clock) = book(state.path());
    let quarantine = Quarantine::with_log(Some(Arc::new(book)));
    quarantine.put(failure(&clock));
    assert!(quarantine.record("x").is_some());
}

#[test]
fn without_a_book_nothing_is_left_behind() {
    let quarantine = Quarantine::default();
    quarantine.put(failure(&HostClock::recorded()));
    assert!(quarantine.record("x").is_some());
}

#[test]
fn a_bundled_engine_is_held_by_its_version_and_legacy_by_nobody() {
    let state = tempfile::tempdir().unwrap();
    let (book, clock) = book(state.path());
    let bytes = Some(format!("bundled {}", env!("CARGO_PKG_VERSION")));
    for id in ["mask", "legacy"] {
        book.record_failure(&QuarantineRecord {
            id: id.into(),
            bytes: bytes.clone(),
            ..failure(&clock)
        })
        .unwrap();
    }
    let mut environment = EngineEnvironment::new(EngineTimeouts::default(), clock);
    environment.failure_log = Some(Arc::new(book));
    let open =
        |id| EngineInstance::open(&EngineSpec::bundled(id, serde_json::json!({})), &environment);
    let error = open("mask").unwrap_err();
    assert!(matches!(error, EngineOpenError::Quarantined { .. }), "{error}");
    assert!(error.to_string().contains("`ctxhost engines release mask`"), "{error}");
    assert!(open("legacy").is_ok());
}
