//! Which markers of dead processes count as crashes.

use super::*;
use crate::{FailureLog, HostClock, QuarantineRules};

fn log(state: &Path) -> FailureLog {
    FailureLog::new(state, QuarantineRules::default(), HostClock::recorded())
}

fn folder(state: &Path) -> PathBuf {
    state.join("engines").join("running")
}

/// Writes the marker of a process that has ended.
fn write_marker(state: &Path, name: &str, lines: &str) {
    fs::create_dir_all(folder(state)).unwrap();
    let head = r#"{"id":"x","sha256":"ab12","pid":1,"since_ms":0}"#;
    fs::write(folder(state).join(name), format!("{head}\n{lines}")).unwrap();
}

fn count_markers(state: &Path) -> usize {
    fs::read_dir(folder(state)).unwrap().count()
}

#[test]
fn a_marker_with_a_signal_is_a_crash_and_counts_once() {
    let state = tempfile::tempdir().unwrap();
    let (state, log) = (state.path(), log(state.path()));
    write_marker(state, "1-0", "load\ncreate\ndied: signal 06\n");
    let record = log.records().unwrap().remove(0);
    assert_eq!((record.crashes, record.operation.as_str()), (1, "create"));
    assert_eq!(record.reason, "signal 6 (SIGABRT)");
    assert_eq!(log.records().unwrap()[0].crashes, 1);
    write_marker(state, "2-0", "load\ncreate\ncalls\ndied: a call of exit\ndied: signal 11\n");
    let record = log.records().unwrap().remove(0);
    assert_eq!((record.crashes, record.operation.as_str()), (2, "calls"));
    assert_eq!(record.reason, "a call of exit");
    assert_eq!(count_markers(state), 0);
}

#[test]
fn a_process_that_was_killed_or_lost_power_is_no_crash() {
    let state = tempfile::tempdir().unwrap();
    let (state, log) = (state.path(), log(state.path()));
    write_marker(state, "1-0", "load\ncreate\n");
    write_marker(state, "2-0", "load\ncreate\ncalls\n");
    fs::write(folder(state).join("3-0"), "").unwrap();
    fs::write(folder(state).join("4-0"), "\0\0\0\0").unwrap();
    assert_eq!(log.records().unwrap(), []);
    assert_eq!(count_markers(state), 0, "and the markers are removed");
}

#[test]
fn a_marker_with_the_same_pid_in_another_container_is_not_overwritten() {
    let state = tempfile::tempdir().unwrap();
    let (state, log) = (state.path(), log(state.path()));
    let (pid, first) = (std::process::id(), MARKERS.load(Ordering::Relaxed));
    // Other tests of this process create markers at the same time.
    let names: Vec<String> = (first..first + 100).map(|number| format!("{pid}-{number}")).collect();
    names.iter().for_each(|name| write_marker(state, name, "load\ndied: signal 11\n"));
    let _marker = log.create_marker("x", "ab12").unwrap();
    assert_eq!(count_markers(state), names.len() + 1);
    assert_eq!(log.records().unwrap()[0].crashes as usize, names.len());
}

#[test]
fn the_marker_of_a_running_process_is_left_alone_and_removed_at_its_end() {
    let state = tempfile::tempdir().unwrap();
    let (state, log) = (state.path(), log(state.path()));
    let marker = log.create_marker("x", "ab12").unwrap();
    marker.record_stage("load");
    // It looks like a crash, but this process still holds the lock.
    marker.record_stage("died: signal 11");
    assert_eq!(log.records().unwrap(), []);
    assert_eq!(count_markers(state), 1);
    drop(marker);
    assert_eq!(count_markers(state), 0);
}
