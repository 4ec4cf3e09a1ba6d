//! Interrupted compactions and undos: what opening the session finds.

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::{Plan, Role};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{CompactionRecovery, NewCompaction, RecordKind, SessionError, pending_path};

/// A session file of six messages.
fn session() -> (TempDir, PathBuf, Session) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::in_memory(SessionHeader::new(Some("mine"), "/home/dev", 1_000));
    talk(&mut session, 6);
    let session = session.into_file(&path).unwrap();
    (folder, path, session)
}

/// Folds all but the newest two entries.
fn try_compact(session: &mut Session) -> Result<String, SessionError> {
    let view = session.live(0).snapshot();
    let len = view.len() as u64;
    let mut plan = Plan::default();
    plan.insert(Role::User, "what happened", 0..len - 2).keep(len - 2..len);
    session.compact(NewCompaction { tokens_after: 10, ..NewCompaction::of_tests(&plan, &view) })
}

fn compact(session: &mut Session) -> String {
    try_compact(session).unwrap()
}

/// A session whose process died after its compaction was worked out: file as before, result beside it.
/// Answers the bytes before and after as well.
fn worked_out() -> (TempDir, PathBuf, Vec<u8>, Vec<u8>) {
    let (folder, path, mut session) = session();
    let before = session.to_bytes();
    session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual").complete();
    // The file seems to be changed by another program, so the append fails.
    fs::write(&path, [&before[..], b"x"].concat()).unwrap();
    let failed = try_compact(&mut session);
    assert!(matches!(failed, Err(SessionError::Changed { .. })), "{failed:?}");
    fs::write(&path, &before).unwrap();
    drop(session);
    let (_other, _, mut same) = self::session();
    compact(&mut same);
    (folder, path, before, same.to_bytes())
}

fn check_nothing_is_pending(folder: &Path) {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("pending")), "{names:?}");
}

fn recover(path: &Path) -> (CompactionRecovery, Vec<u8>) {
    let mut session = Session::open(path).unwrap();
    let recovered = session.recover_compaction();
    assert!(!pending_path(path).exists(), "nothing is left beside it");
    assert_eq!(session.to_bytes(), fs::read(path).unwrap());
    assert_eq!(session.recover_compaction(), CompactionRecovery::Nothing, "once is enough");
    (recovered, fs::read(path).unwrap())
}

#[test]
fn without_a_crash_nothing_is_left_beside_the_session() {
    let (folder, path, mut session) = session();
    let view = session.live(0).snapshot();
    session.begin_compaction(&view, "legacy", "manual").complete();
    assert!(pending_path(&path).exists());
    compact(&mut session);
    check_nothing_is_pending(folder.path());
}

#[test]
fn a_compaction_that_came_to_nothing_is_forgotten() {
    let (folder, _path, session) = session();
    drop(session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual"));
    check_nothing_is_pending(folder.path());
}

#[cfg(unix)]
#[test]
fn the_file_beside_a_session_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path, session) = session();
    let intent = session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual");
    let mode = fs::metadata(pending_path(&path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(intent);
}

#[test]
fn an_intent_alone_is_discarded() {
    let (_folder, path, session) = session();
    let before = session.to_bytes();
    session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual").complete();
    drop(session);
    let (recovered, found) = recover(&path);
    assert_eq!(recovered, CompactionRecovery::Discarded { reason: "it had no result yet".into() });
    assert_eq!(found, before);
}

#[test]
fn a_result_is_redone_to_the_very_bytes_it_would_have_been() {
    let (_folder, path, _before, after) = worked_out();
    let (recovered, found) = recover(&path);
    assert!(matches!(recovered, CompactionRecovery::Applied { .. }), "{recovered:?}");
    assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(after).unwrap());
}

#[test]
fn a_result_that_is_recorded_already_is_not_recorded_twice() {
    let (_folder, path, _before, after) = worked_out();
    let pending = fs::read(pending_path(&path)).unwrap();
    recover(&path);
    fs::write(pending_path(&path), pending).unwrap();
    let (recovered, found) = recover(&path);
    assert_eq!(
        recovered,
        CompactionRecovery::Discarded { reason: "it is already in the session".into() }
    );
    assert_eq!(found, after);
}

#[test]
fn a_result_of_an_extended_session_is_discarded() {
    let (_folder, path, ..) = worked_out();
    let mut session = Session::open(&path).unwrap();
    session.append_at(user("one more"), 8_000).unwrap();
    let before = session.to_bytes();
    drop(session);
    let (recovered, found) = recover(&path);
    assert_eq!(
        recovered,
        CompactionRecovery::Discarded { reason: "the session was extended since".into() }
    );
    assert_eq!(found, before);
}

#[test]
fn another_session_s_result_is_no_result() {
    let (_folder, path, ..) = worked_out();
    let pending = fs::read_to_string(pending_path(&path)).unwrap();
    fs::write(pending_path(&path), pending.replace("\"mine\"", "\"theirs\"")).unwrap();
    assert!(matches!(recover(&path).0, CompactionRecovery::Discarded { .. }));
}

#[test]
fn what_is_beside_a_session_and_unreadable_is_kept_and_stops_nothing() {
    for (number, bytes) in [&b"{\"version\":1,\"ses"[..], b"", b"\xff", b"[]"].iter().enumerate() {
        let (folder, path, session) = session();
        let before = session.to_bytes();
        drop(session);
        fs::write(pending_path(&path), bytes).unwrap();
        let (recovered, found) = recover(&path);
        assert!(
            matches!(recovered, CompactionRecovery::Discarded { .. }),
            "{number}: {recovered:?}"
        );
        assert_eq!(found, before);
        let copy = folder.path().join("s.jsonl.pending.unreadable");
        assert_eq!(fs::read(copy).unwrap(), *bytes);
    }
}

#[test]
fn a_newer_version_is_kept_too() {
    let (folder, path, ..) = worked_out();
    let pending = fs::read_to_string(pending_path(&path)).unwrap();
    fs::write(pending_path(&path), pending.replace("\"version\":1", "\"version\":2")).unwrap();
    assert!(matches!(recover(&path).0, CompactionRecovery::Discarded { .. }));
    assert!(folder.path().join("s.jsonl.pending.unreadable").exists());
}

#[test]
fn where_nothing_can_be_noted_the_compaction_goes_on() {
    let (_folder, path, mut session) = session();
    fs::create_dir(pending_path(&path)).unwrap();
    session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual").complete();
    let id = compact(&mut session);
    assert_eq!(Session::read(&path).unwrap().leaf().unwrap().id(), id);
}

#[test]
fn a_session_in_memory_has_nothing_beside_it() {
    let mut session = memory();
    talk(&mut session, 6);
    drop(session.begin_compaction(&session.live(0).snapshot(), "legacy", "manual"));
    compact(&mut session);
    assert_eq!(session.recover_compaction(), CompactionRecovery::Nothing);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The append of a result may stop at any byte: it is there once in the end.
    #[test]
    fn a_commit_that_was_cut_is_made_whole(share in 0.0..=1.0_f64) {
        let (_folder, path, before, after) = worked_out();
        let line_bytes = after.len() - before.len();
        let cut = before.len() + (line_bytes as f64 * share) as usize;
        fs::write(&path, &after[..cut]).unwrap();
        recover(&path);
        let session = Session::open(&path).unwrap();
        let compactions = session.records().iter();
        let compactions = compactions.filter(|record| *record.kind() == RecordKind::Compaction);
        prop_assert_eq!(compactions.count(), 1);
        prop_assert_eq!(texts(&session).len(), 3);
        let whole = fs::read(&path).unwrap();
        prop_assert!(after.starts_with(whole.strip_suffix(b"\n").unwrap_or(&whole)));
    }

    /// The write of an undo may stop at any byte: the session is as before or after it.
    #[test]
    fn an_undo_that_was_cut_is_none(
        since in 0..6_usize,
        earlier_undo in any::<bool>(),
        share in 0.0..=1.0_f64,
    ) {
        let (_folder, path, mut session) = session();
        compact(&mut session);
        if earlier_undo {
            session.append_at(user("between"), 9_050).unwrap();
            compact(&mut session);
            session.append_at(user("and after"), 9_060).unwrap();
            session.undo_newest_compaction().unwrap();
        }
        for number in 0..since {
            session.append_at(user(&format!("since {number}")), 9_100 + number as i64).unwrap();
        }
        let (before, stood_at) = (session.to_bytes(), texts(&session));
        session.undo_newest_compaction().unwrap();
        let (after, stands_at) = (session.to_bytes(), texts(&session));
        drop(session);
        let cut = before.len() + ((after.len() - before.len()) as f64 * share) as usize;
        fs::write(&path, &after[..cut]).unwrap();
        // A line is there when all of it is, with its line break or without.
        let is_done = cut + 1 >= after.len();
        let mut session = Session::open(&path).unwrap();
        let expected = if is_done { &stands_at } else { &stood_at };
        prop_assert_eq!(&texts(&session), expected);
        session.append_at(user("continued"), 9_900).unwrap();
        let continued = [&expected[..], &["continued".to_owned()]].concat();
        prop_assert_eq!(&texts(&session), &continued);
        drop(session);
        prop_assert_eq!(&texts(&Session::read(&path).unwrap()), &continued);
    }
}

#[test]
fn half_an_undo_from_which_somebody_continued_is_theirs() {
    let (_folder, path, mut session) = session();
    compact(&mut session);
    for number in 0..3 {
        session.append_at(user(&format!("since {number}")), 9_100 + number).unwrap();
    }
    let before = session.records().len();
    session.undo_newest_compaction().unwrap();
    let lines: Vec<String> = session.records().iter().map(|r| r.line().to_owned()).collect();
    let header = session.header().line().to_owned();
    drop(session);
    // The undo and the first of its three are there; another program spoke behind them.
    let foreign = r#"{"type":"message","id":"12345678","parentId":"PARENT","timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"from Pi"}}"#;
    let last = crate::Record::parse(&lines[before + 1]).unwrap().record;
    let foreign = foreign.replace("PARENT", last.id());
    let kept = lines[..before + 2].iter().map(String::as_str);
    let file: Vec<&str> =
        [header.as_str()].into_iter().chain(kept).chain([foreign.as_str()]).collect();
    fs::write(&path, file.join("\n") + "\n").unwrap();
    let session = Session::read(&path).unwrap();
    assert_eq!(session.leaf().unwrap().id(), "12345678");
}
