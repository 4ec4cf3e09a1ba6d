//! Two plans in a row as one: what the second makes of what the first shows, told of the original.
//!
//! ```text
//!  original   0 1 2 3 4 5 6 7 8
//!  first      keep 0..1 · insert(A, covers 1..4) · replace 4 · keep 5..9
//!  shows      0 [A] 4' 5 6 7 8                     positions 0 to 6
//!  second     keep 0..1 · insert(B, covers 1..3) · keep 4..7
//!  composed   keep 0..1 · insert(B, covers 1..5) · keep 6..9
//! ```
//!
//! Positions and ranges of the composed plan are those of the original, so that the law, the reports
//! and the session never hear of what stood in between. It knows plans alone: no transcript is read.

use std::iter::Peekable;
use std::ops::Range;
use std::vec;

use ctxhost_engine_api::{Action, Message, Op, Plan, PlanExtras, PlanNote, PromptAuthority};

use ctxhost_session::replace_text_in_raw;

/// The plan that shows of the original what `second` shows of what `first` shows. Both are lawful, each
/// for its own transcript.
pub(super) fn compose(first: &Plan, second: Plan) -> Plan {
    let shown = PlanProjection::new(first);
    let mut seam =
        PlanComposer { shown: &shown, dropped: shown.drops(), reached: 0, ops: Vec::new() };
    for op in second.ops {
        seam.push_op(op);
    }
    seam.push_drops_before(u64::MAX);
    let known = |tokens: u64| (tokens > 0).then_some(tokens);
    Plan {
        ops: seam.ops,
        estimated_tokens: known(second.estimated_tokens).unwrap_or(first.estimated_tokens),
        extras: merge_extras(first.extras.clone(), second.extras),
    }
}

/// What a plan shows, run by run.
#[derive(Clone, Debug)]
pub(super) struct PlanProjection<'p> {
    runs: Vec<ProjectedRun<'p>>,
    /// Ranges that it says it leaves out, each with the position before which it does.
    drops: Vec<(u64, Op)>,
    len: u64,
}

/// One run of what is shown: kept entries, or one that was changed or put in.
#[derive(Clone, Debug)]
pub(super) struct ProjectedRun<'p> {
    /// Positions in what is shown.
    pub(super) positions: Range<u64>,
    /// Positions in the original that it is or stands for.
    pub(super) origin: Range<u64>,
    /// The operation that shows it.
    pub(super) op: &'p Op,
}

impl ProjectedRun<'_> {
    fn is_kept(&self) -> bool {
        matches!(self.op.action, Action::Keep(_))
    }

    /// The part of it at these positions.
    fn slice(&self, at: &Range<u64>) -> Self {
        let at = self.positions.start.max(at.start)..self.positions.end.min(at.end);
        let origin = match self.is_kept() {
            true => {
                let from = self.origin.start + (at.start - self.positions.start);
                from..from + (at.end - at.start)
            }
            false => self.origin.clone(),
        };
        ProjectedRun { positions: at, origin, op: self.op }
    }
}

impl<'p> PlanProjection<'p> {
    /// What a plan shows.
    pub(super) fn new(plan: &'p Plan) -> PlanProjection<'p> {
        let mut shown = PlanProjection { runs: Vec::new(), drops: Vec::new(), len: 0 };
        let mut reached = 0;
        for op in &plan.ops {
            let range = op.action.range();
            let origin = match range.is_empty() {
                // What stands for nothing stands where it is written.
                true => reached.max(range.start)..reached.max(range.start),
                false => range,
            };
            reached = reached.max(origin.end);
            let len = match &op.action {
                Action::Keep(range) => range.end.saturating_sub(range.start),
                Action::Drop(_) => {
                    shown.drops.push((shown.len, op.clone()));
                    0
                }
                Action::ReplaceText { .. } | Action::ReplaceRaw { .. } | Action::Insert { .. } => 1,
                // The law lets none through that it does not know.
                _ => 0,
            };
            if len > 0 {
                let at = shown.len..shown.len + len;
                shown.len += len;
                shown.runs.push(ProjectedRun { positions: at, origin, op });
            }
        }
        shown
    }

    /// The runs, in order.
    pub(super) fn runs(&self) -> &[ProjectedRun<'p>] {
        &self.runs
    }

    /// What of it stands at these positions, in pieces.
    fn runs_in(&self, at: &Range<u64>) -> Vec<ProjectedRun<'p>> {
        let first = self.runs.partition_point(|run| run.positions.end <= at.start);
        let runs = self.runs.iter().skip(first).take_while(|run| run.positions.start < at.end);
        runs.map(|run| run.slice(at)).collect()
    }

    /// The positions of the original that a range of what is shown stands for; empty where it stands
    /// for none.
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

    /// The positions at which a range of the original is shown.
    pub(super) fn projected_range(&self, origin: &Range<u64>) -> Range<u64> {
        let start = self.projected_position(origin.start);
        start..self.projected_position(origin.end).max(start)
    }

    /// Where in the original a position of what is shown stands.
    fn origin_position(&self, at: u64) -> u64 {
        match self.runs_in(&(at..at.saturating_add(1))).first() {
            Some(piece) => piece.origin.start,
            None => self.runs.last().map_or(0, |run| run.origin.end),
        }
    }

    /// The first position that shows the original from `seq` on.
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

/// The composed plan in the making.
struct PlanComposer<'s, 'p> {
    shown: &'s PlanProjection<'p>,
    dropped: Peekable<vec::IntoIter<(u64, Op)>>,
    /// How far the operations so far have come in the original.
    reached: u64,
    ops: Vec<Op>,
}

impl PlanComposer<'_, '_> {
    fn push_op(&mut self, op: Op) {
        let range = op.action.range();
        match op.action {
            Action::Insert { role, text, covers } => {
                let origin = self.shown.origin_range(&covers);
                self.push_drops_before(covers.start);
                let start = self.reached.max(origin.start);
                let covers = start..start.max(origin.end);
                self.push(Op { action: Action::Insert { role, text, covers }, note: op.note });
            }
            Action::Drop(_) => {
                for piece in self.shown.runs_in(&range) {
                    self.push_drops_before(piece.positions.start);
                    let start = self.reached.max(piece.origin.start);
                    if start < piece.origin.end {
                        let action = Action::Drop(start..piece.origin.end);
                        self.push(Op { action, note: op.note.clone() });
                    }
                }
            }
            action => {
                for piece in self.shown.runs_in(&range) {
                    self.push_drops_before(piece.positions.start);
                    self.push(compose_op(&piece, &action, op.note.as_ref()));
                }
            }
        }
    }

    /// Says of what the first plan leaves out before a position that it does, unless something stands
    /// for it by now.
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

/// One piece of what the first plan shows, as the second has it.
fn compose_op(piece: &ProjectedRun<'_>, action: &Action, note: Option<&PlanNote>) -> Op {
    let seq = piece.origin.start;
    let note = note.cloned();
    let covers = piece.origin.clone();
    let action = match (&piece.op.action, action) {
        // Kept by both: the part of the range; kept by the second alone: what the first made of it.
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
        // The calls that stay are those of the rewrite, not those of the original.
        (Action::ReplaceRaw { raw, .. }, Action::ReplaceText { text, .. }) => {
            Action::ReplaceRaw { seq, raw: replace_text_in_raw(raw, text) }
        }
        (_, Action::ReplaceText { text, .. }) => Action::ReplaceText { seq, text: text.clone() },
        (_, Action::ReplaceRaw { raw, .. }) => Action::ReplaceRaw { seq, raw: raw.clone() },
        (_, other) => other.clone(),
    };
    Op { action, note }
}

/// What two plans say beside their operations.
fn merge_extras(first: PlanExtras, second: PlanExtras) -> PlanExtras {
    let additions = [first.system_prompt_addition, second.system_prompt_addition];
    let additions: Vec<String> = additions.into_iter().flatten().collect();
    let epochs = [first.projection_epoch, second.projection_epoch];
    let may_overflow = [first.prompt_authority, second.prompt_authority]
        .contains(&PromptAuthority::PreassemblyMayOverflow);
    PlanExtras {
        system_prompt_addition: (!additions.is_empty()).then(|| additions.join("\n\n")),
        prompt_authority: match may_overflow {
            true => PromptAuthority::PreassemblyMayOverflow,
            false => PromptAuthority::Assembled,
        },
        // It rises when either of them does.
        projection_epoch: epochs.into_iter().flatten().reduce(u64::saturating_add),
        compaction_wanted: second.compaction_wanted.or(first.compaction_wanted),
        notes: [first.notes, second.notes].concat(),
        details: if second.details.is_null() { first.details } else { second.details },
    }
}

#[cfg(test)]
mod tests;
