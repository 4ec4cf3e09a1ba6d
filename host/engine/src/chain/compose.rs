//! Composes two plans: a plan over the projection of another becomes one over the original
//! transcript.
//!
//! ```text
//!  original   0 1 2 3 4 5 6 7 8
//!  first      keep 0..1 · insert(A, covers 1..4) · replace 4 · keep 5..9
//!  shows      0 [A] 4' 5 6 7 8                     positions 0 to 6
//!  second     keep 0..1 · insert(B, covers 1..3) · keep 4..7
//!  composed   keep 0..1 · insert(B, covers 1..5) · keep 6..9
//! ```
//!
//! Positions and ranges of the composed plan are those of the original, so that invariants, reports
//! and the session need not know the projection. Works on plans alone and reads no transcript.

use std::iter::Peekable;
use std::ops::Range;
use std::vec;

use ctxhost_engine_api::{Action, Message, Op, Plan, PlanExtras, PlanNote, PromptAuthority};

use ctxhost_session::replace_text_in_raw;

/// Composes `second`, a plan over the projection of `first`, with `first`. Both satisfy the
/// invariants over their transcripts.
pub(super) fn compose(first: &Plan, second: Plan) -> Plan {
    let projection = PlanProjection::new(first);
    let mut composer = PlanComposer {
        dropped: projection.drops(),
        projection: &projection,
        reached: 0,
        ops: Vec::new(),
    };
    for op in second.ops {
        composer.push_op(op);
    }
    composer.push_drops_before(u64::MAX);
    let known = |tokens: u64| (tokens > 0).then_some(tokens);
    Plan {
        ops: composer.ops,
        estimated_tokens: known(second.estimated_tokens).unwrap_or(first.estimated_tokens),
        extras: merge_extras(first.extras.clone(), second.extras),
    }
}

/// The projection of a plan as a list of runs.
#[derive(Clone, Debug)]
pub(super) struct PlanProjection<'p> {
    runs: Vec<ProjectedRun<'p>>,
    /// Explicitly dropped ranges, each with its position in the projection.
    drops: Vec<(u64, Op)>,
    len: u64,
}

/// A run of a projection: kept entries, or one entry that was changed or inserted.
#[derive(Clone, Debug)]
pub(super) struct ProjectedRun<'p> {
    /// Positions in the projection.
    pub(super) positions: Range<u64>,
    /// Positions in the original that the run contains or replaces.
    pub(super) origin: Range<u64>,
    /// The operation behind the run.
    pub(super) op: &'p Op,
}

impl ProjectedRun<'_> {
    fn is_kept(&self) -> bool {
        matches!(self.op.action, Action::Keep(_))
    }

    /// The part of the run at these positions.
    fn slice(&self, at: &Range<u64>) -> Self {
        let at = self.positions.start.max(at.start)..self.positions.end.min(at.end);
        let origin = if self.is_kept() {
            let from = self.origin.start + (at.start - self.positions.start);
            from..from + (at.end - at.start)
        } else {
            self.origin.clone()
        };
        ProjectedRun { positions: at, origin, op: self.op }
    }
}

impl<'p> PlanProjection<'p> {
    /// The projection of a plan.
    pub(super) fn new(plan: &'p Plan) -> PlanProjection<'p> {
        let mut projection = PlanProjection { runs: Vec::new(), drops: Vec::new(), len: 0 };
        let mut reached = 0;
        for op in &plan.ops {
            let range = op.action.range();
            let origin = if range.is_empty() {
                // An operation that covers no entry stays at its place in the plan.
                reached.max(range.start)..reached.max(range.start)
            } else {
                range
            };
            reached = reached.max(origin.end);
            let len = match &op.action {
                Action::Keep(range) => range.end.saturating_sub(range.start),
                Action::Drop(_) => {
                    projection.drops.push((projection.len, op.clone()));
                    0
                }
                Action::ReplaceText { .. } | Action::ReplaceRaw { .. } | Action::Insert { .. } => 1,
                // Unknown operations do not pass the checks.
                _ => 0,
            };
            if len > 0 {
                let at = projection.len..projection.len + len;
                projection.len += len;
                projection.runs.push(ProjectedRun { positions: at, origin, op });
            }
        }
        projection
    }

    /// The runs, in order.
    pub(super) fn runs(&self) -> &[ProjectedRun<'p>] {
        &self.runs
    }

    /// The parts of runs at these positions.
    fn runs_in(&self, at: &Range<u64>) -> Vec<ProjectedRun<'p>> {
        let first = self.runs.partition_point(|run| run.positions.end <= at.start);
        let runs = self.runs.iter().skip(first).take_while(|run| run.positions.start < at.end);
        runs.map(|run| run.slice(at)).collect()
    }

    /// The range of the original behind a range of the projection; empty where there is none.
    pub(super) fn origin_range(&self, at: &Range<u64>) -> Range<u64> {
        let pieces = self.runs_in(at);
        match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => {
                first.origin.start..last.origin.end.max(first.origin.start)
            }
            _ => {
                let place = self.origin_position(at.start);
                place..place
            }
        }
    }

    /// The range of the projection that shows a range of the original.
    pub(super) fn projected_range(&self, origin: &Range<u64>) -> Range<u64> {
        let start = self.projected_position(origin.start);
        start..self.projected_position(origin.end).max(start)
    }

    /// The position in the original of a position in the projection.
    fn origin_position(&self, at: u64) -> u64 {
        match self.runs_in(&(at..at.saturating_add(1))).first() {
            Some(piece) => piece.origin.start,
            None => self.runs.last().map_or(0, |run| run.origin.end),
        }
    }

    /// The first position of the projection at or after `seq` of the original.
    fn projected_position(&self, seq: u64) -> u64 {
        let after = self.runs.partition_point(|run| run.origin.end <= seq);
        match self.runs.get(after) {
            Some(run) if run.is_kept() => {
                run.positions.start + seq.saturating_sub(run.origin.start)
            }
            Some(run) => run.positions.start,
            None => self.len,
        }
    }

    fn drops(&self) -> Peekable<vec::IntoIter<(u64, Op)>> {
        self.drops.clone().into_iter().peekable()
    }
}

/// Builds the composed plan.
struct PlanComposer<'s, 'p> {
    projection: &'s PlanProjection<'p>,
    dropped: Peekable<vec::IntoIter<(u64, Op)>>,
    /// The end of the operations so far, in the original.
    reached: u64,
    ops: Vec<Op>,
}

impl PlanComposer<'_, '_> {
    fn push_op(&mut self, op: Op) {
        let range = op.action.range();
        match op.action {
            Action::Insert { role, text, covers } => {
                let origin = self.projection.origin_range(&covers);
                self.push_drops_before(covers.start);
                let start = self.reached.max(origin.start);
                let covers = start..start.max(origin.end);
                self.push(Op { action: Action::Insert { role, text, covers }, note: op.note });
            }
            Action::Drop(_) => {
                for piece in self.projection.runs_in(&range) {
                    self.push_drops_before(piece.positions.start);
                    let start = self.reached.max(piece.origin.start);
                    if start < piece.origin.end {
                        let action = Action::Drop(start..piece.origin.end);
                        self.push(Op { action, note: op.note.clone() });
                    }
                }
            }
            action => {
                for piece in self.projection.runs_in(&range) {
                    self.push_drops_before(piece.positions.start);
                    self.push(compose_op(&piece, &action, op.note.as_ref()));
                }
            }
        }
    }

    /// Adds the drops of the first plan before a position, except for ranges that the second plan
    /// covers.
    fn push_drops_before(&mut self, position: u64) {
        while let Some((_, op)) = self.dropped.next_if(|(before, _)| *before <= position) {
            if op.action.range().start >= self.reached {
                self.push(op);
            }
        }
    }

    fn push(&mut self, op: Op) {
        self.reached = self.reached.max(op.action.range().end);
        self.ops.push(op);
    }
}

/// An operation of the second plan on one run of the first.
fn compose_op(piece: &ProjectedRun<'_>, action: &Action, note: Option<&PlanNote>) -> Op {
    let seq = piece.origin.start;
    let note = note.cloned();
    let covers = piece.origin.clone();
    let action = match (&piece.op.action, action) {
        // Kept by both plans: the part of the range. Kept by the second alone: the first plan's
        // change.
        (Action::Keep(_), Action::Keep(_)) => {
            return Op { action: Action::Keep(covers), note: note.or(piece.op.note.clone()) };
        }
        (_, Action::Keep(_)) => {
            return Op { note: piece.op.note.clone().or(note), ..piece.op.clone() };
        }
        (Action::Insert { role, .. }, Action::ReplaceText { text, .. }) => {
            Action::Insert { role: *role, text: text.clone(), covers }
        }
        (Action::Insert { role, .. }, Action::ReplaceRaw { raw, .. }) => {
            Action::Insert { role: *role, text: Message::parse(raw, "").text(), covers }
        }
        // Keeps the tool calls of the rewrite, not those of the original.
        (Action::ReplaceRaw { raw, .. }, Action::ReplaceText { text, .. }) => {
            Action::ReplaceRaw { seq, raw: replace_text_in_raw(raw, text) }
        }
        (_, Action::ReplaceText { text, .. }) => Action::ReplaceText { seq, text: text.clone() },
        (_, Action::ReplaceRaw { raw, .. }) => Action::ReplaceRaw { seq, raw: raw.clone() },
        (_, other) => other.clone(),
    };
    Op { action, note }
}

/// Merges the extras of two plans.
fn merge_extras(first: PlanExtras, second: PlanExtras) -> PlanExtras {
    let additions = [first.system_prompt_addition, second.system_prompt_addition];
    let additions: Vec<String> = additions.into_iter().flatten().collect();
    let epochs = [first.projection_epoch, second.projection_epoch];
    let may_overflow = [first.prompt_authority, second.prompt_authority]
        .contains(&PromptAuthority::PreassemblyMayOverflow);
    PlanExtras {
        system_prompt_addition: (!additions.is_empty()).then(|| additions.join("\n\n")),
        prompt_authority: if may_overflow {
            PromptAuthority::PreassemblyMayOverflow
        } else {
            PromptAuthority::Assembled
        },
        // The sum rises whenever either epoch does.
        projection_epoch: epochs.into_iter().flatten().reduce(u64::saturating_add),
        compaction_wanted: second.compaction_wanted.or(first.compaction_wanted),
        notes: [first.notes, second.notes].concat(),
        details: if second.details.is_null() { first.details } else { second.details },
    }
}

#[cfg(test)]
mod tests;
