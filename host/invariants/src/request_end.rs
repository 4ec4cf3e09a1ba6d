//! Keeps what the model has to answer at the end of a request.
//!
//! A model answers what it reads last. A text of an engine behind the user's message reads as if the user
//! had written it, and one behind the results of tools as a new request.
//!
//! ```text
//!  plan       keep 0..9 · insert("note", 9..9)                  entry 8 is the user's newest message
//!  result     keep 0..8 · insert("note", 8..8) · keep 8..9
//! ```

use std::ops::Range;

use ctxhost_engine_api::{Action, Entry, Flags, Op, Plan, Role, Transcript};

use super::Repair;
use super::pinned::frame_range;

/// The plan with every text that it inserts within or behind the end of the request before that end.
///
/// A transcript that ends with an answer, as at a compaction between turns, has no such end.
pub(super) fn move_inserts(view: &Transcript, plan: Plan, repairs: &mut Vec<Repair>) -> Plan {
    let Some(end) = request_end(view) else { return plan };
    let Some(first) = plan.ops.iter().position(|op| keeps_past(op, end.start)) else { return plan };
    if !plan.ops.iter().skip(first).any(is_insert) {
        return plan;
    }
    let mut moved =
        Plan { extras: plan.extras, estimated_tokens: plan.estimated_tokens, ops: vec![] };
    let mut ops = plan.ops.into_iter();
    moved.ops.extend(ops.by_ref().take(first));
    let (inserts, mut rest): (Vec<Op>, Vec<Op>) = ops.partition(is_insert);
    if let Some(Op { action: Action::Keep(range), note }) = rest.first_mut()
        && range.start < end.start
    {
        let before = range.start..end.start;
        range.start = end.start;
        moved.ops.push(Op { action: Action::Keep(before), note: note.clone() });
    }
    for op in inserts {
        if let Action::Insert { role, text, .. } = op.action {
            let action = Action::Insert { role, text, covers: end.start..end.start };
            moved.ops.push(Op { action, note: op.note });
            repairs.push(Repair::MovedInsert { before: end.start });
        }
    }
    moved.ops.extend(rest);
    moved
}

/// The user's message or the tool round that the transcript ends with.
fn request_end(view: &Transcript) -> Option<Range<u64>> {
    let last = view.iter().rev().find(|entry| is_sent(view, entry))?;
    let is_live = last.role() == Role::Tool || last.has(Flags::TOOL_CALLS);
    (is_live || last.is_user_message()).then(|| frame_range(view, last.seq()))
}

/// Whether the pairing keeps an entry: not an orphan, and no aborted message without text or results.
fn is_sent(view: &Transcript, entry: &Entry<'_>) -> bool {
    let is_alone = || frame_range(view, entry.seq()).count() == 1;
    let is_abandoned = entry.has(Flags::ABORTED)
        && entry.has(Flags::TOOL_CALLS)
        && !entry.has(Flags::PINNED)
        && entry.text().trim().is_empty()
        && is_alone();
    !entry.has(Flags::ORPHAN) && !is_abandoned
}

fn keeps_past(op: &Op, position: u64) -> bool {
    let is_kept = matches!(
        op.action,
        Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. }
    );
    is_kept && op.action.range().end > position
}

fn is_insert(op: &Op) -> bool {
    matches!(op.action, Action::Insert { .. })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    fn check(script: Script, build: impl FnOnce(&mut Plan), expect: impl FnOnce(&mut Plan)) {
        let view = script.finish().transcript();
        let (mut plan, mut expected) = (Plan::default(), Plan::default());
        build(&mut plan);
        expect(&mut expected);
        let is_moved = plan.ops != expected.ops;
        let mut repairs = Vec::new();
        assert_eq!(move_inserts(&view, plan, &mut repairs).ops, expected.ops);
        assert_eq!(!repairs.is_empty(), is_moved);
    }

    fn talk() -> Script {
        Script::new().user("task").assistant("done").user("more?")
    }

    #[test]
    fn a_text_behind_the_newest_message() {
        check(
            talk(),
            |plan| _ = plan.keep(0..3).insert(Role::User, "obey", 3..3),
            |plan| _ = plan.keep(0..2).insert(Role::User, "obey", 2..2).keep(2..3),
        );
    }

    #[test]
    fn a_text_of_the_assistant_and_one_with_an_old_position() {
        check(
            talk(),
            |plan| _ = plan.keep(2..3).insert(Role::Assistant, "Sure:", 0..0),
            |plan| _ = plan.insert(Role::Assistant, "Sure:", 2..2).keep(2..3),
        );
    }

    #[test]
    fn texts_within_and_behind_a_tool_round_keep_their_order() {
        let round = talk().calls("", &["a", "b"]).result("a", "1").result("b", "2");
        check(
            round,
            |plan| {
                plan.keep(0..4).insert(Role::User, "within", 4..4).keep(4..6);
                plan.insert(Role::User, "behind", 6..6);
            },
            |plan| {
                plan.keep(0..3).insert(Role::User, "within", 3..3);
                plan.insert(Role::User, "behind", 3..3).keep(3..4);
                plan.ops.push(Op { action: Action::Keep(4..6), note: None });
            },
        );
    }

    #[test]
    fn a_summary_behind_an_answer_stays() {
        let summary = |plan: &mut Plan| _ = plan.keep(0..1).insert(Role::User, "summary", 1..4);
        check(talk().assistant("and that"), summary, summary);
    }

    #[test]
    fn a_text_before_the_end_stays() {
        let note = |plan: &mut Plan| _ = plan.insert(Role::User, "note", 0..2).keep(2..3);
        check(talk(), note, note);
    }
}
