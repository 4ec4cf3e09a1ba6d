//! Compactions taken back by their number.

use super::*;
use crate::{HistoryError, compactions, undo_compaction};

#[test]
fn the_newest_is_taken_back_and_the_digest_is_the_one_before() {
    let mut session = memory();
    for number in 1..=3 {
        turn(&mut session, number, "text");
    }
    let before = session.digest();
    let id = fold(&mut session, 4, "short");
    let undone = undo_compaction(&mut session, None).unwrap();
    assert_eq!((undone.compaction.number, undone.compaction.id), (1, id));
    assert_eq!(undone.compaction.engine.as_deref(), Some("window 0.1.0"));
    assert_eq!(undone.before, undone.now);
    assert_eq!(undone.now.digest, before);
    assert_eq!(session.digest(), before);
}

#[test]
fn undoing_the_first_undoes_the_second_and_keeps_later_messages() {
    let mut session = memory();
    turn(&mut session, 1, "text");
    fold(&mut session, 0, "short");
    turn(&mut session, 2, "more");
    let second = fold(&mut session, 0, "shorter");
    user(&mut session, "last");
    let undone = undo_compaction(&mut session, Some(1)).unwrap();
    assert_eq!(undone.newer.iter().map(|newer| newer.id.as_str()).collect::<Vec<_>>(), [second]);
    assert_eq!((undone.before.entries, undone.now.entries), (4, 9));
    assert_eq!(texts(&session)[8], "last");
    assert!(compactions(&session).is_empty());
}

#[test]
fn a_number_that_is_not_there_is_answered_with_those_that_are() {
    let mut session = memory();
    turn(&mut session, 1, "text");
    assert!(matches!(undo_compaction(&mut session, None), Err(HistoryError::NoCompaction)));
    fold(&mut session, 0, "short");
    fold(&mut session, 0, "shorter");
    for number in [0, 3, -3] {
        let error = undo_compaction(&mut session, Some(number)).unwrap_err().to_string();
        let there = "there are @1 (window 0.1.0, manual), @2 (";
        assert!(error.starts_with(&format!("no compaction @{number} on this branch; ")), "{error}");
        assert!(error.contains(there), "{error}");
    }
    assert_eq!(texts(&session), ["shorter"]);
    assert_eq!(undo_compaction(&mut session, Some(-2)).unwrap().compaction.number, 1);
}
