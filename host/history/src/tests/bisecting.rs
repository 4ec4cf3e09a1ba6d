//! Texts that were lost, and the compaction that lost them.

use super::*;
use crate::{HistoryError, LineNumbers, TextFate, bisect, compactions, undo_compaction};

#[test]
fn the_compaction_that_lost_it_is_named() {
    let mut session = memory();
    turn(&mut session, 1, "The answer\n  is Forty-Two.");
    turn(&mut session, 2, "text");
    fold(&mut session, 4, "the answer is forty-two, they say");
    turn(&mut session, 3, "text");
    let second = fold(&mut session, 4, "nothing of note");
    turn(&mut session, 4, "text");
    fold(&mut session, 4, "nothing at all");

    let found = bisect(&session, "answer IS forty-two", LineNumbers::OfFile).unwrap();
    let first = found.first.unwrap();
    assert_eq!((first.line, first.turn), (Some(4), Some(1)));
    assert_eq!(first.speaker, "result of read");
    let TextFate::Lost { by, last_seen } = found.fate else { panic!("{:?}", found.fate) };
    assert_eq!((by.number, by.id), (2, second));
    assert_eq!((last_seen.speaker.as_str(), last_seen.line), ("summary", None));

    undo_compaction(&mut session, Some(2)).unwrap();
    let found = bisect(&session, "answer is forty-two", LineNumbers::OfFile).unwrap();
    assert!(matches!(found.fate, TextFate::InContext { at } if at.speaker == "summary"));
}

#[test]
fn paths_in_calls_are_found_and_unknown_text_is_not() {
    let mut session = memory();
    let ids = turn(&mut session, 1, "text");
    let found = bisect(&session, "src/file_1.rs", LineNumbers::OfFile).unwrap();
    assert!(matches!(found.fate, TextFate::InContext { at } if at.entry == ids[1]));
    let found = bisect(&session, "src/file_9.rs", LineNumbers::OfFile).unwrap();
    assert_eq!((found.first, found.fate), (None, TextFate::NeverAppeared));
    assert!(matches!(bisect(&session, " \n", LineNumbers::OfFile), Err(HistoryError::EmptyText)));
}

#[test]
fn accents_apart_from_their_characters_are_the_same() {
    let mut session = memory();
    turn(&mut session, 1, "wrote Cafe\u{301}.md and th\u{e9}.md");
    for text in ["caf\u{e9}.md", "cafe\u{301}.md", "th\u{e9}.md", "the\u{301}.md"] {
        let found = bisect(&session, text, LineNumbers::OfFile).unwrap();
        assert!(matches!(found.fate, TextFate::InContext { .. }), "{text:?}");
    }
}

#[test]
fn another_branch_and_an_edit_are_no_loss() {
    let mut session = memory();
    let first = user(&mut session, "one");
    let slip = user(&mut session, "a slip");
    let edit = json!({ "type": "context_edit", "targetId": slip, "replacement": null });
    session.append(RecordBody::from_value(&edit).unwrap()).unwrap();
    assert_eq!(bisect(&session, "slip", LineNumbers::OfFile).unwrap().fate, TextFate::LeftOut);
    session.set_leaf(&first).unwrap();
    let found = bisect(&session, "slip", LineNumbers::OfFile).unwrap();
    assert_eq!(found.fate, TextFate::OnAnotherBranch);
    assert_eq!(found.first.unwrap().entry, slip);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_was_folded_away_is_found_and_undo_brings_it_back(
        mut session in sessions(), folded in 1..4_u64, number in 100_000..999_999_u32,
    ) {
        let needle = format!("number {number}");
        user(&mut session, &format!("remember the  NUMBER\n{number}"));
        for _ in 0..folded {
            fold(&mut session, 0, "gone");
            user(&mut session, "go on");
        }
        let TextFate::Lost { by, .. } = bisect(&session, &needle, LineNumbers::OfFile).unwrap().fate else {
            return Err(TestCaseError::fail("not lost"));
        };
        undo_compaction(&mut session, Some(by.number as i64)).unwrap();
        let found = bisect(&session, &needle, LineNumbers::OfFile).unwrap();
        prop_assert!(matches!(found.fate, TextFate::InContext { .. }), "{found:?}");
    }
}

#[test]
fn an_entry_is_searched_once_whatever_the_number_of_compactions() {
    let mut session = memory();
    for number in 0..30 {
        turn(&mut session, number, "text");
        fold(&mut session, 1, "nothing of note");
    }
    let searched = std::cell::Cell::new(0);
    let loss = session.find_newest_loss(|_| {
        searched.set(searched.get() + 1);
        false
    });
    assert!(loss.is_none());
    let entries = session.records().len();
    assert!(searched.get() <= entries, "{} searches of {entries} records", searched.get());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_newest_loss_is_that_of_the_transcripts_around_each_compaction(
        mut session in sessions(), word in "[a-e0-9]", hidden in 0..20_usize,
        is_made_again in any::<bool>(),
    ) {
        let target = session.records().get(hidden).map(|record| record.id().to_owned());
        if let Some(target) = target {
            let edit = json!({ "type": "context_edit", "targetId": target, "replacement": null });
            session.append(RecordBody::from_value(&edit).unwrap()).unwrap();
            fold(&mut session, 1, "folded again");
        }
        if let Some(newest) = compactions(&session).last().filter(|_| is_made_again) {
            fold_without(&mut session, std::slice::from_ref(&newest.id), 1, "made again");
        }
        let has = |live: ctxhost_engine_api::transcript::log::TranscriptLog| {
            live.snapshot().iter().any(|entry| entry.text().contains(&word))
        };
        let expected = compactions(&session).into_iter().rev().find(|compaction| {
            has(session.live_before(&compaction.id).unwrap())
                && !has(session.live_at(&compaction.id).unwrap())
        });
        let found = session.find_newest_loss(|entry| entry.text.contains(&word));
        prop_assert_eq!(found.map(|record| record.id()), expected.as_ref().map(|it| it.id.as_str()));
    }
}
