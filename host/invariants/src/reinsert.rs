//! Reinserts entries into a plan at their positions.
//!
//! ```text
//!  plan       insert(covers 1..6) · keep 6..8
//!  missing    0..1 · 2..3
//!  result     keep 0..1 · keep 2..3 · insert(covers 3..6) · keep 6..8
//! ```

use std::ops::Range;

use ctxhost_engine_api::{Action, Op, Plan};

use super::ranges::RangeSet;

/// The plan with the missing positions kept. The plan must not keep them yet.
pub(super) fn reinsert(plan: Plan, missing: RangeSet) -> Plan {
    if missing.iter().next().is_none() {
        return plan;
    }
    let mut reinserter =
        Reinserter { waiting: missing.iter().peekable(), reached: 0, result: Plan::default() };
    // One pass: operations and missing ranges are both in ascending order.
    for op in plan.ops {
        reinserter.push_op(op, &missing);
    }
    reinserter.catch_up(u64::MAX);
    Plan { ops: reinserter.result.ops, ..plan }
}

struct Reinserter<I: Iterator<Item = Range<u64>>> {
    waiting: std::iter::Peekable<I>,
    reached: u64,
    result: Plan,
}

impl<I: Iterator<Item = Range<u64>>> Reinserter<I> {
    fn push_op(&mut self, op: Op, missing: &RangeSet) {
        match op.action {
            Action::Drop(range) => {
                for gap in missing.gaps_in(range) {
                    self.push(gap.start, Op { action: Action::Drop(gap), note: op.note.clone() });
                }
            }
            Action::Insert { role, text, covers } => {
                let covers = self.uncovered_part(covers, missing);
                let place = covers.start;
                self.push(
                    place,
                    Op { action: Action::Insert { role, text, covers }, note: op.note },
                );
            }
            action => self.push(action.range().start, Op { action, note: op.note }),
        }
    }

    /// The range that an inserted message still covers: the longest part that was not reinserted,
    /// or its place where no part is left.
    fn uncovered_part(&self, covers: Range<u64>, missing: &RangeSet) -> Range<u64> {
        let place = self.reached.max(covers.start);
        // An insertion covers one range only. A summary that explains most of the gap is better than none.
        let longest = |best: Option<Range<u64>>, gap: Range<u64>| match best {
            Some(best) if best.end - best.start >= gap.end - gap.start => Some(best),
            _ => Some(gap),
        };
        missing.gaps_in(covers).into_iter().fold(None, longest).unwrap_or(place..place)
    }

    fn push(&mut self, place: u64, op: Op) {
        self.catch_up(place);
        self.reached = self.reached.max(op.action.range().end);
        self.result.ops.push(op);
    }

    /// Keeps the missing ranges before a position.
    fn catch_up(&mut self, place: u64) {
        while let Some(range) = self.waiting.next_if(|range| range.start < place) {
            self.reached = self.reached.max(range.end);
            self.result.keep(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Role;

    use super::*;

    fn spans(ranges: &[Range<u64>]) -> RangeSet {
        RangeSet::from_ranges(ranges.iter().cloned())
    }

    fn check(build: impl FnOnce(&mut Plan), missing: RangeSet, expect: impl FnOnce(&mut Plan)) {
        let (mut plan, mut expected) = (Plan::default(), Plan::default());
        build(&mut plan);
        expect(&mut expected);
        assert_eq!(reinsert(plan, missing).ops, expected.ops);
    }

    #[test]
    fn an_insert_covers_the_longest_remaining_part() {
        check(
            |plan| _ = plan.insert(Role::User, "summary", 1..6).keep(6..8),
            spans(&[0..1, 2..3]),
            |plan| _ = plan.keep(0..1).keep(2..3).insert(Role::User, "summary", 3..6).keep(6..8),
        );
    }

    #[test]
    fn an_insert_stays_in_place_when_all_it_covered_is_reinserted() {
        check(
            |plan| _ = plan.keep(0..1).insert(Role::User, "summary", 1..3).keep(4..5),
            RangeSet::from_ranges(Some(1..4)),
            |plan| {
                plan.keep(0..1).insert(Role::User, "summary", 1..1).keep(1..4);
                plan.ops.push(Op { action: Action::Keep(4..5), note: None });
            },
        );
    }

    #[test]
    fn a_drop_is_split() {
        check(
            |plan| _ = plan.leave_out(0..5),
            spans(&[2..3, 4..5]),
            |plan| _ = plan.leave_out(0..2).keep(2..3).leave_out(3..4).keep(4..5),
        );
    }

    #[test]
    fn an_insert_without_a_range_stays_after_its_neighbour() {
        check(
            |plan| _ = plan.keep(3..4).insert(Role::User, "note", 0..0),
            spans(&[0..1, 5..6]),
            |plan| _ = plan.keep(0..1).keep(3..4).insert(Role::User, "note", 4..4).keep(5..6),
        );
    }
}
