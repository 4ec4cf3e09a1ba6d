//! The law: what holds for every request, whatever an engine answers.
//!
//! The law knows the words of the contract and nothing else: no sessions, no engines, no files.
//!
//! ```text
//!  plan ──► shape ──► budget ──► keep ──► pairing ──► Lawful ──► items ──► audit
//!           refuse    refuse     mend     mend                            count
//! ```
//!
//! A plan that no mending could make honest (out of range, forged, far too wordy) is refused with a
//! typed [`PlanViolation`]; the engine is at fault and the runtime says so. A plan that leaves out what
//! must stay, or cuts between a call and its result, is mended, and each [`Repair`] is reported.
//! [`verify`] then looks at the finished items with other eyes: it shares no code with the repairs.
//!
//! Judging a plan costs one step per operation and one per kept entry; [`PinnedEntries`] and [`InvariantVerifier`],
//! kept beside a session, spare even the one pass over the history that finds the pinned entries.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod settings;
mod violation;

mod shape;

mod budget;
mod pairing;
mod pinned;
mod ranges;
mod reinsert;

mod emergency_trim;
mod verify;

pub mod progress;

#[cfg(test)]
mod tests;

use ctxhost_engine_api::{Action, Plan, PlanItem, Transcript};

pub use emergency_trim::{EmergencyTrimError, LedgerBudget, LedgerWriter, emergency_trim};
pub use pinned::PinnedEntries;
use ranges::RangeSet;
pub use settings::{BudgetShare, InvariantSettings, ShareError};
pub use verify::{InvariantVerifier, InvariantViolation, verify};
pub use violation::{PinReason, PlanViolation, Repair};

/// A plan that the law has passed.
#[derive(Clone, Debug, PartialEq)]
pub struct EnforcedPlan {
    /// The plan, mended where it had to be.
    pub plan: Plan,
    /// What its items cost by the host's own count, without margin.
    pub tokens: u64,
    /// What was mended in the plan; empty for a plan that was lawful as it came.
    pub repairs: Vec<Repair>,
    /// What the recorded conversation itself needed, whatever the plan: results moved to their
    /// calls, missing ones added, orphans left out. The engine is not to blame for these.
    pub pairing_repairs: Vec<Repair>,
}

impl EnforcedPlan {
    /// The items that the model sees, every call with its result directly behind it.
    pub fn items<'a>(&'a self, view: &'a Transcript) -> Vec<PlanItem<'a>> {
        pairing::pair_results(self.plan.project(view)).items
    }
}

/// Checks a plan and, where it can, mends it. A plan over its budget passes: the tokens say so.
pub fn enforce(
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<EnforcedPlan, PlanViolation> {
    enforce_with(&PinnedEntries::from_transcript(view), view, plan, budget_tokens, settings)
}

/// [`enforce`] with the anchors of the session at hand, so that no history is walked.
pub fn enforce_with(
    anchors: &PinnedEntries,
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<EnforcedPlan, PlanViolation> {
    shape::check_shape(view, &plan)?;
    budget::check_inserted_text(view, &plan, budget_tokens, settings)?;
    let mut repairs = Vec::new();
    let words = pinned::PinnedText { view, pinned: anchors, budget_tokens, settings };
    let plan = words.restore(plan, &mut repairs);
    let missing = pinned::missing_ranges(view, anchors, &kept_ranges(&plan), &mut repairs);
    let plan = reinsert::reinsert(plan, missing);
    let (tokens, settled) = budget::count_tokens(view, &plan);
    Ok(EnforcedPlan { plan, tokens, repairs, pairing_repairs: settled })
}

/// The positions that a plan keeps, in whatever form.
fn kept_ranges(plan: &Plan) -> RangeSet {
    let keeps = |action: &&Action| {
        matches!(action, Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. })
    };
    RangeSet::from_ranges(plan.ops.iter().map(|op| &op.action).filter(keeps).map(Action::range))
}
