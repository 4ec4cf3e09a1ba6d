//! Compactions taken back: the live transcript is as if they had never been.

use ctxhost_engine_api::testing::generate::{self, GeneratedTranscript};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::compaction::{any_body, any_plan, by_pi, compact, reopened};
use super::*;
use crate::{NewCompaction, Record, RecordKind, SessionError, transcript_digest};

/// The compactions of the branch, oldest first.
fn compactions(session: &Session) -> Vec<String> {
    let branch = session.branch().into_iter();
    let compactions = branch.filter(|record| *record.kind() == RecordKind::Compaction);
    compactions.map(|record| record.id().to_owned()).collect()
}

/// The branch in a session of its own, in which neither this compaction nor a newer one was made.
fn as_if_never_compacted(session: &Session, compaction: &str) -> Session {
    let branch: Vec<&Record> = session.branch();
    let at = branch.iter().position(|record| record.id() == compaction).unwrap();
    let mut other = memory();
    for (step, record) in branch.into_iter().enumerate() {
        if step < at || *record.kind() != RecordKind::Compaction {
            other.append_copy(record).unwrap();
        }
    }
    other
}

fn edit(target: &str, replacement: Value) -> RecordBody {
    let value = json!({ "type": "context_edit", "targetId": target, "replacement": replacement });
    RecordBody::from_value(&value).unwrap()
}

/// One step of a session.
#[derive(Clone, Debug)]
enum Step {
    /// A record of some sort.
    Append(u8),
    /// A whole generated conversation.
    Talk(GeneratedTranscript),
    /// An earlier record has other content from here on, or none.
    Edit(Index, bool),
    /// A compaction by ctxhost.
    Compact(Vec<u8>),
    /// A compaction by Pi, which keeps the records from one on.
    CompactByPi(Index),
    /// The newest compaction is taken back.
    Undo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => any::<u8>().prop_map(Step::Append),
        1 => generate::transcripts().prop_map(Step::Talk),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(at, omit)| Step::Edit(at, omit)),
        3 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Step::Compact),
        1 => any::<Index>().prop_map(Step::CompactByPi),
        1 => Just(Step::Undo),
    ];
    prop::collection::vec(step, 1..20)
}

/// Takes the step; where it was a compaction, the digest before it is noted.
fn take(session: &mut Session, step: &Step, digests: &mut Vec<(String, String)>) {
    let number = session.records().len();
    let before = session.digest();
    match step {
        Step::Append(sort) => {
            session.append_at(any_body(*sort, number), 1_000 + number as i64).unwrap();
        }
        Step::Talk(talk) => {
            for body in talk.entries.iter().filter_map(|e| RecordBody::message(&e.raw).ok()) {
                session.append_at(body, 1_000).unwrap();
            }
        }
        Step::Edit(at, omit) if number > 0 => {
            let target = session.records()[at.index(number)].id().to_owned();
            let content = json!({ "content": "edited" });
            session.append(edit(&target, if *omit { Value::Null } else { content })).unwrap();
        }
        Step::Compact(choices) => {
            let view = session.live(0).snapshot();
            let plan = any_plan(&view, choices);
            digests.push((session.compact(NewCompaction::of_tests(&plan, &view)).unwrap(), before));
        }
        Step::CompactByPi(at) if number > 0 => {
            let kept = session.records()[at.index(number)].id().to_owned();
            digests.push((by_pi(session, &kept, json!({})), before));
        }
        Step::Undo => {
            session.undo_newest_compaction().unwrap();
        }
        Step::Edit(..) | Step::CompactByPi(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_compaction_of_any_session_can_be_taken_back(steps in steps(), which in any::<Index>()) {
        let (mut session, mut digests) = (memory(), Vec::new());
        for step in &steps {
            take(&mut session, step, &mut digests);
        }
        let compactions = compactions(&session);
        prop_assume!(!compactions.is_empty());
        let compaction = which.get(&compactions);

        // What a compaction left behind it can be looked at without undoing anything.
        let noted = digests.iter().find(|(id, _)| id == compaction).map(|(_, digest)| digest);
        let found = transcript_digest(&session.live_before(compaction).unwrap().snapshot());
        prop_assert_eq!(noted, Some(&found));

        let expected = as_if_never_compacted(&session, compaction).digest();
        let bytes = session.to_bytes();
        session.undo_compaction_of(compaction).unwrap();
        prop_assert!(session.to_bytes().starts_with(&bytes), "nothing is removed");
        prop_assert_eq!(session.digest(), expected);
        prop_assert_eq!(reopened(&session).digest(), session.digest());
    }

    #[test]
    fn taken_back_at_once_the_transcript_is_as_before(steps in steps(), choices in prop::collection::vec(any::<u8>(), 1..9)) {
        let (mut session, mut digests) = (memory(), Vec::new());
        for step in &steps {
            take(&mut session, step, &mut digests);
        }
        let before = seen(&session.live(0));
        let at_once = session.digest();
        take(&mut session, &Step::Compact(choices), &mut digests);
        session.undo_newest_compaction().unwrap();
        prop_assert_eq!(session.digest(), at_once);
        prop_assert_eq!(seen(&session.live(0)), before, "ids and all");
    }
}

#[test]
fn a_compaction_below_newer_ones_takes_them_with_it() {
    let mut session = memory();
    talk(&mut session, 2);
    let first = compact(&mut session, |plan| {
        plan.insert(Role::User, "older", 0..2);
    })
    .unwrap();
    session.append(user("between")).unwrap();
    compact(&mut session, |plan| {
        plan.insert(Role::User, "all", 0..2);
    })
    .unwrap();
    session.append(user("after")).unwrap();
    session.undo_compaction_of(&first).unwrap();
    assert_eq!(texts(&session), ["message 1", "message 2", "between", "after"]);
    assert!(compactions(&session).is_empty());
    assert!(matches!(session.undo_compaction_of(&first), Err(SessionError::UnknownRecord { .. })));
}

#[test]
fn undone_twice_both_are_taken_back_and_a_new_one_can_be_made() {
    let mut session = memory();
    talk(&mut session, 2);
    let begun = session.digest();
    for _ in 0..2 {
        compact(&mut session, |plan| {
            plan.insert(Role::User, "short", 0..1);
        })
        .unwrap();
    }
    assert!(session.undo_newest_compaction().unwrap().is_some());
    assert!(session.undo_newest_compaction().unwrap().is_some());
    assert_eq!(session.undo_newest_compaction().unwrap(), None);
    assert_eq!(session.digest(), begun);
    compact(&mut session, |plan| {
        plan.keep(1..2);
    })
    .unwrap();
    assert_eq!(texts(&session), ["message 2"]);
    session.undo_newest_compaction().unwrap();
    assert_eq!(reopened(&session).digest(), begun);
}

#[test]
fn a_compaction_on_the_first_line_can_be_undone() {
    let mut session = memory();
    by_pi(&mut session, "nowhere", json!({}));
    session.append(user("after")).unwrap();
    session.undo_newest_compaction().unwrap();
    assert_eq!(texts(&session), ["after"]);
    assert_eq!(texts(&reopened(&session)), ["after"]);
    assert_eq!(session.leaf().unwrap().kind(), &RecordKind::Message);
}

#[test]
fn an_edit_since_still_finds_what_it_edits() {
    let mut session = memory();
    talk(&mut session, 1);
    compact(&mut session, |plan| {
        plan.keep(0..1);
    })
    .unwrap();
    let slip = session.append(user("a slip")).unwrap();
    session.append(edit(&slip, Value::Null)).unwrap();
    let first = session.records()[0].id().to_owned();
    session.append(edit(&first, json!({ "content": "edited" }))).unwrap();
    session.undo_newest_compaction().unwrap();
    assert_eq!(texts(&session), ["edited"]);
}

#[test]
fn a_digest_covers_content_and_not_positions() {
    let with_text = |id: &str, words: &str| {
        let mut session = Session::in_memory(SessionHeader::new(Some(id), "/home/dev", 1_000));
        session.append_at(RecordBody::custom_message("note", words, true), 5).unwrap();
        session.append_at(user(words), 6).unwrap();
        session
    };
    assert_eq!(with_text("a", "x").digest(), with_text("b", "x").digest());
    assert_ne!(with_text("a", "x").digest(), with_text("a", "y").digest());
    let session = with_text("a", "x");
    let id = session.records()[0].id().to_owned();
    assert_ne!(transcript_digest(&session.live_at(&id).unwrap().snapshot()), session.digest());
    assert!(session.live_before(&id).unwrap().is_empty());
    assert_eq!((session.line_of(&id), session.line_of("nothing")), (Some(2), None));
}
