//! Forks: new sessions with the records of the original up to a point.

use super::*;
use crate::{ForkPoint, HistoryError, find_compaction, fork_session};

#[test]
fn a_fork_ends_at_the_requested_point() {
    let mut session = memory();
    let first = turn(&mut session, 1, "text");
    turn(&mut session, 2, "text");
    fold(&mut session, 0, "short");
    turn(&mut session, 3, "text");
    let length = |until| fork_session(&session, &until, "s.jsonl", 5).unwrap().records().len();
    assert_eq!(length(ForkPoint::Leaf), 13);
    assert_eq!(length(ForkPoint::Record(first[1].clone())), 2);
    assert_eq!(length(ForkPoint::Turn(1)), 4);
    assert_eq!(length(ForkPoint::Turn(2)), 9, "a compaction belongs to the turn before it");
    assert_eq!(length(ForkPoint::Turn(3)), 13);
    assert_eq!(length(ForkPoint::BeforeCompaction(1)), 8);
    let fails = |until| fork_session(&session, &until, "s.jsonl", 5).unwrap_err();
    assert!(matches!(fails(ForkPoint::Turn(4)), HistoryError::UnknownTurn { .. }));
    assert!(matches!(fails(ForkPoint::Turn(0)), HistoryError::UnknownTurn { .. }));
    assert!(matches!(
        fails(ForkPoint::BeforeCompaction(2)),
        HistoryError::UnknownCompaction { .. }
    ));
    assert!(matches!(fails(ForkPoint::Record("no".into())), HistoryError::Session(_)));

    let fork = fork_session(&session, &ForkPoint::Leaf, "s.jsonl", 5).unwrap();
    assert_eq!(fork.header().parent_session(), Some("s.jsonl"));
    assert_eq!(fork.header().cwd(), "/home/dev/app");
    assert_ne!(fork.header().id(), session.header().id());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_fork_is_live_as_the_original_was(session in sessions()) {
        let whole = fork_session(&session, &ForkPoint::Leaf, "s", 5).unwrap();
        prop_assert_eq!(whole.digest(), session.digest());
        let again = Session::parse("fork", &whole.to_bytes()).unwrap();
        prop_assert_eq!(again.problems(), []);
        prop_assert_eq!(again.digest(), session.digest());
        if let Ok(first) = find_compaction(&session, Some(1)) {
            let before = fork_session(&session, &ForkPoint::BeforeCompaction(1), "s", 5).unwrap();
            let expected = session.live_before(&first.id).unwrap().snapshot();
            prop_assert_eq!(before.digest(), ctxhost_session::transcript_digest(&expected));
        }
    }
}
