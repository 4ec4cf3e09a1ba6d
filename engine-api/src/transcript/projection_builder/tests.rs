//! Tests of projections as transcripts.

use proptest::prelude::*;

use super::*;
use crate::EntryKind;
use crate::testing::generate::{Script, transcripts};

fn all_of(view: &Transcript) -> Vec<String> {
    let describe = |entry: Entry<'_>| {
        format!(
            "{} {} {} {} {} {} {:?} {:?} {:?} {} {} {} {}",
            entry.seq(),
            entry.id(),
            entry.parent_id(),
            entry.frame(),
            entry.tokens_before(),
            entry.tokens(),
            entry.flags(),
            entry.role(),
            entry.kind(),
            entry.timestamp_ms(),
            entry.is_user_message(),
            entry.text(),
            entry.raw(),
        )
    };
    view.iter().map(describe).collect()
}

fn everything(view: &Transcript, epoch: u64) -> Transcript {
    let mut projected = ProjectionBuilder::new(view, epoch);
    (0..view.len() as u64).for_each(|seq| projected.keep(seq));
    projected.finish()
}

fn words(id: &str, role: Role, text: &str) -> SharedEntry {
    NewEntry {
        id: id.into(),
        parent_id: String::new(),
        timestamp_ms: 7,
        role,
        kind: EntryKind::Message,
        flags: Flags::SYNTHETIC,
        tokens: 3,
        text: text.into(),
        raw: format!("{text:?}"),
        calls: Vec::new(),
        answers: None,
    }
    .into()
}

#[test]
fn strings_outlive_the_view_below() {
    let view = Script::new().user("task").assistant("done").finish().transcript();
    let projected = everything(&view, 4);
    let expected = all_of(&view);
    let before = view.get(1).unwrap().text().as_ptr();
    drop(view);
    assert_eq!(all_of(&projected), expected);
    assert_eq!(projected.get(1).unwrap().text().as_ptr(), before, "nothing is copied");
    assert_eq!(projected.epoch(), 4);
}

#[test]
fn a_view_over_a_view_over_a_view() {
    let view = Script::new().user("task").assistant("done").finish().transcript();
    let expected = all_of(&view);
    let stacked = everything(&everything(&everything(&view, 1), 2), 3);
    drop(view);
    assert_eq!(all_of(&stacked), expected);
}

#[test]
fn what_is_left_out_moves_frames_and_sums() {
    let view =
        Script::new().user("task").assistant("a").calls("", &["x"]).result("x", "1").finish();
    let view = view.transcript();
    let mut projected = ProjectionBuilder::new(&view, 1);
    [0, 2, 3, 9].into_iter().for_each(|seq| projected.keep(seq));
    let projected = projected.finish();
    let frames: Vec<_> = projected.iter().map(|entry| (entry.seq(), entry.frame())).collect();
    assert_eq!(frames, [(0, 0), (1, 1), (2, 1)]);
    assert_eq!(projected.tokens(1..3), view.tokens(2..4));
    assert_eq!(projected.total_tokens(), view.total_tokens() - view.tokens(1..2));
}

#[test]
fn what_is_put_in_between_a_call_and_its_result_belongs_to_them() {
    let view = Script::new().calls("", &["x"]).result("x", "1").user("so?").finish().transcript();
    let mut projected = ProjectionBuilder::new(&view, 1);
    projected.keep(0);
    projected.insert(&words("n", Role::User, "note"));
    projected.keep(1);
    projected.insert(&words("m", Role::User, "more"));
    projected.keep(2);
    let projected = projected.finish();
    let frames: Vec<_> = projected.iter().map(|entry| entry.frame()).collect();
    assert_eq!(frames, [0, 0, 0, 3, 4]);
    assert!(projected.get(2).unwrap().has(Flags::DISPLACED));
}

#[test]
fn other_words_keep_what_is_known_of_calls() {
    let view = Script::new().user("task").calls("look", &["x"]).finish().transcript();
    let mut projected = ProjectionBuilder::new(&view, 1);
    projected.replace(1, &words("00000001", Role::Assistant, "hm"));
    let projected = projected.finish();
    let entry = projected.get(0).unwrap();
    assert_eq!((entry.text(), entry.role(), entry.tokens()), ("hm", Role::Assistant, 3));
    let expected = Flags::SYNTHETIC.with(Flags::TOOL_CALLS).with(Flags::UNANSWERED);
    assert_eq!(entry.flags(), expected);
}

#[test]
fn a_result_whose_call_is_left_out_is_an_orphan() {
    let view = Script::new().calls("", &["x"]).result("x", "1").finish().transcript();
    let mut projected = ProjectionBuilder::new(&view, 1);
    projected.keep(1);
    let projected = projected.finish();
    assert!(projected.get(0).unwrap().has(Flags::ORPHAN));
    assert!(projected.get(0).unwrap().is_cut_point());
}

#[test]
fn more_than_a_chunk() {
    let mut script = Script::new();
    for _ in 0..1_500 {
        script = script.user("q").assistant("a");
    }
    let view = script.finish().transcript();
    assert_eq!(all_of(&everything(&view, 1)), all_of(&view));
}

proptest! {
    #[test]
    fn keeping_everything_changes_nothing(generated in transcripts()) {
        let view = generated.transcript();
        prop_assert_eq!(all_of(&everything(&view, 1)), all_of(&view));
    }
}
