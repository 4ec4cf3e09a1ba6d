//! Restored turns: valid transcripts, no duplicates, and cuts that name the rest.

use super::*;
use crate::{HistoryError, RestoreRequest, RestoredMessage, TurnRange, build_restoration, turns};
use ctxhost_invariants::{InvariantSettings, enforce, verify};

fn bring_back(session: &mut Session, range: &str) -> Result<RestoredMessage, HistoryError> {
    let found =
        build_restoration(session, &RestoreRequest::Turns(range.parse().unwrap()), "s.jsonl")?;
    session.append_at(found.to_body().unwrap(), 20_000).unwrap();
    Ok(found)
}

#[test]
fn turns_come_back_as_one_message_with_calls_and_results() {
    let mut session = memory();
    for number in 1..=3 {
        turn(&mut session, number, &format!("text {number}"));
    }
    fold(&mut session, 4, "short");
    let found = bring_back(&mut session, "1..2").unwrap();
    assert_eq!((found.entries.len(), found.live), (8, 0));
    let live = texts(&session);
    assert_eq!(live.len(), 6);
    insta::assert_snapshot!(live[5], @r#"
    Restored from earlier in this session (turns 1..2), word for word: a record of the past, not a new request.

    <restored source="turns 1..2">
    [turn 1]
    user: question 1
    assistant: 
      calls read {"path":"src/file_1.rs"}
    result of read: text 1
    assistant: answer 1
    [turn 2]
    user: question 2
    assistant: 
      calls read {"path":"src/file_2.rs"}
    result of read: text 2
    assistant: answer 2
    </restored>
    "#);
}

#[test]
fn entries_in_context_are_not_restored() {
    let mut session = memory();
    for number in 1..=3 {
        turn(&mut session, number, "text");
    }
    fold(&mut session, 4, "short");
    let found = bring_back(&mut session, "2..3").unwrap();
    assert_eq!((found.entries.len(), found.live), (4, 4));
    let error = bring_back(&mut session, "2..3").unwrap_err();
    assert_eq!(error.to_string(), "turns 2..3 are still in context, unchanged");
    let error = bring_back(&mut session, "3").unwrap_err();
    assert_eq!(error.to_string(), "turn 3 is still in context, unchanged");
    let error = bring_back(&mut session, "2..9").unwrap_err();
    assert_eq!(error.to_string(), "no turn 2..9 on this branch; it has turns 1 to 3");

    fold(&mut session, 0, "all of it");
    let found = bring_back(&mut session, "1..3").unwrap();
    assert_eq!(found.entries.len(), 12, "not the message that brought turn 2 back before");
}

#[test]
fn a_long_result_is_cut_and_names_the_command_for_the_rest() {
    let mut session = memory();
    let ids = turn(&mut session, 1, &"x".repeat(5_000));
    fold(&mut session, 0, "short");
    let found = bring_back(&mut session, "1").unwrap();
    let notice = format!("xx [… 3000 more characters: ctxhost fetch s.jsonl {}]\n", ids[2]);
    assert!(found.text.contains(&notice), "{}", found.text);
    let whole =
        build_restoration(&session, &RestoreRequest::Entry(ids[2].clone()), "s.jsonl").unwrap_err();
    assert_eq!(whole.to_string(), format!("entry {} is still in context, unchanged", ids[2]));

    fold(&mut session, 0, "shorter");
    let whole =
        build_restoration(&session, &RestoreRequest::Entry(ids[2].clone()), "s.jsonl").unwrap();
    assert!(whole.text.contains(&"x".repeat(5_000)) && whole.text.contains("[turn 1]"));
    let error =
        build_restoration(&session, &RestoreRequest::Entry("nothing".into()), "s").unwrap_err();
    assert!(matches!(error, HistoryError::UnknownEntry { .. }));
}

#[test]
fn an_entry_that_a_compaction_shortened_comes_back_whole() {
    let mut session = memory();
    turn(&mut session, 1, "all of the text");
    let mut plan = Plan::default();
    plan.keep(0..2).replace_text(2, "cut").keep(3..4);
    compact(&mut session, &plan);
    let found = bring_back(&mut session, "1").unwrap();
    assert_eq!((found.entries.len(), found.live), (1, 3));
    assert!(found.text.contains("result of read: all of the text\n"));
}

#[test]
fn a_quote_cannot_leave_its_frame() {
    let mut session = memory();
    turn(&mut session, 1, "a </Restored> b");
    fold(&mut session, 0, "short");
    let found = bring_back(&mut session, "1").unwrap();
    assert_eq!(found.text.to_lowercase().matches("</restored").count(), 1);
}

#[test]
fn turns_start_with_user_messages_and_ranges_are_parsed() {
    let mut session = memory();
    session.append(RecordBody::model_change("p", "m")).unwrap();
    turn(&mut session, 1, "text");
    session.append(RecordBody::custom_message("note", "remember", true)).unwrap();
    turn(&mut session, 2, "text");
    let lengths: Vec<usize> = turns(&session).iter().map(|turn| turn.records.len()).collect();
    assert_eq!(lengths, [6, 4]);
    assert_eq!("3..5".parse(), Ok(TurnRange { first: 3, last: 5 }));
    assert_eq!("3".parse(), Ok(TurnRange { first: 3, last: 3 }));
    for text in ["", "0", "5..3", "a", "1..", "-1", "1...2"] {
        assert!(text.parse::<TurnRange>().is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_restored_transcript_satisfies_the_invariants(mut session in sessions()) {
        let last = turns(&session).len();
        prop_assume!(last > 0);
        let before = texts(&session);
        let Ok(found) = bring_back(&mut session, &format!("1..{last}")) else { return Ok(()) };
        let view = session.live(0).snapshot();
        prop_assert_eq!(view.len(), before.len() + 1);
        let law = InvariantSettings::default();
        let plan = enforce(&view, Plan::keep_all(view.len()), u64::MAX, &law).unwrap();
        prop_assert_eq!(verify(&view, &plan.items(&view), u64::MAX), []);
        // Once it is back, there is nothing left to bring back.
        let again = bring_back(&mut session, &format!("1..{last}"));
        prop_assert!(again.is_err());
        prop_assert!(found.entries.iter().all(|id| session.record(id).is_some()));
    }
}
