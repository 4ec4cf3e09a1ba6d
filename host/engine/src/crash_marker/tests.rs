//! Notes of processes that are gone: which of them tell of a crash.

use super::*;
use crate::{HostClock, QuarantineRules};

fn book(state: &Path) -> FailureLog {
    FailureLog::new(state, QuarantineRules::default(), HostClock::recorded())
}

/// The note of a process that is gone.
fn note(book: &FailureLog, name: &str, words: &str) {
    fs::create_dir_all(book.marker_folder()).unwrap();
    let head = r#"{"id":"x","sha256":"ab12","pid":1,"since_ms":0}"#;
    fs::write(book.marker_folder().join(name), format!("{head}\n{words}")).unwrap();
}

fn left(book: &FailureLog) -> usize {
    fs::read_dir(book.marker_folder()).unwrap().count()
}

#[test]
fn a_note_with_a_signal_is_a_crash_and_counts_once() {
    let state = tempfile::tempdir().unwrap();
    let book = book(state.path());
    note(&book, "1-0", "load\ncreate\ndied: signal 06\n");
    let record = book.records().unwrap().remove(0);
    assert_eq!((record.crashes, record.operation.as_str()), (1, "create"));
    assert_eq!(record.reason, "signal 6 (SIGABRT)");
    assert_eq!(book.records().unwrap()[0].crashes, 1);
    note(&book, "2-0", "load\ncreate\ncalls\ndied: a call of exit\ndied: signal 11\n");
    let record = book.records().unwrap().remove(0);
    assert_eq!((record.crashes, record.operation.as_str()), (2, "calls"));
    assert_eq!(record.reason, "a call of exit");
    assert_eq!(left(&book), 0);
}

#[test]
fn a_process_that_was_killed_or_lost_its_power_blames_nobody() {
    let state = tempfile::tempdir().unwrap();
    let book = book(state.path());
    note(&book, "1-0", "load\ncreate\n");
    note(&book, "2-0", "load\ncreate\ncalls\n");
    fs::write(book.marker_folder().join("3-0"), "").unwrap();
    fs::write(book.marker_folder().join("4-0"), "\0\0\0\0").unwrap();
    assert_eq!(book.records().unwrap(), []);
    assert_eq!(left(&book), 0, "and the notes are gone");
}

#[test]
fn a_note_of_the_same_number_in_another_container_is_not_written_over() {
    let state = tempfile::tempdir().unwrap();
    let book = book(state.path());
    let (pid, first) = (std::process::id(), NOTES.load(Ordering::Relaxed));
    // Other tests of this process set notes at the same time.
    let names: Vec<String> = (first..first + 100).map(|number| format!("{pid}-{number}")).collect();
    names.iter().for_each(|name| note(&book, name, "load\ndied: signal 11\n"));
    let _sentinel = CrashMarker::create(&book, "x", "ab12").unwrap();
    assert_eq!(left(&book), names.len() + 1);
    assert_eq!(book.records().unwrap()[0].crashes as usize, names.len());
}

#[test]
fn the_note_of_a_living_process_is_left_alone_and_goes_with_it() {
    let state = tempfile::tempdir().unwrap();
    let book = book(state.path());
    let sentinel = CrashMarker::create(&book, "x", "ab12").unwrap();
    sentinel.record_stage("load");
    // As if this very process had crashed: it has not, as long as it holds the lock.
    sentinel.record_stage("died: signal 11");
    assert_eq!(book.records().unwrap(), []);
    assert_eq!(left(&book), 1);
    drop(sentinel);
    assert_eq!(left(&book), 0);
}
