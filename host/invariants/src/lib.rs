//! Invariants of every request: checks plans, repairs what can be repaired, and verifies the
//! result.
//!
//! Works on the types of the engine API alone: no sessions, engines or files.
//!
//! ```text
//!  plan ──► shape ──► budget ──► pinned ──► pairing ──► EnforcedPlan ──► items ──► verify
//!           refuse    refuse     repair     repair                           count
//! ```
//!
//! A plan that cannot be repaired (out of range, tampered, with far too much inserted text) is
//! refused with a typed [`PlanViolation`], which is the engine's fault. A plan that drops pinned
//! entries, or cuts between a call and its result, is repaired, and each [`Repair`] is reported.
//! [`verify`] then checks the finished items independently: it shares no code with the repairs.
//!
//! Enforcing costs one step for each operation and each kept entry. [`PinnedEntries`] and
//! [`InvariantVerifier`], kept with a session, save the pass over the history that finds the pinned
//! entries.

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
mod request_end;

mod attachments;
mod emergency_trim;
mod long_requests;
mod verify;

pub mod progress;

#[cfg(test)]
mod tests;

use ctxhost_engine_api::{Action, Plan, PlanItem, Transcript};

pub use attachments::{AttachmentCut, drop_attachments, has_attachments, text_bytes};
pub use budget::{FAIR_BUDGET_TOKENS, system_addition_tokens};
pub use emergency_trim::{
    EmergencyTrimError, LedgerBudget, LedgerWriter, emergency_trim, pinned_tokens,
};
pub use long_requests::shorten_long_requests;
pub use pinned::PinnedEntries;
use ranges::RangeSet;
pub use settings::{BudgetShare, InvariantSettings, ShareError};
pub use verify::{InvariantVerifier, InvariantViolation, verify};
pub use violation::{PinReason, PlanViolation, Repair};

/// A plan that satisfies the invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct EnforcedPlan {
    /// The plan, repaired where necessary.
    pub plan: Plan,
    /// The cost of its items, and of what it adds to the system prompt, by the host's own count, without margin.
    pub tokens: u64,
    /// Repairs of the plan; empty for a valid plan.
    pub repairs: Vec<Repair>,
    /// Repairs that the recorded conversation needed whatever the plan: moved results, added
    /// missing ones, dropped orphans. The engine is not at fault.
    pub pairing_repairs: Vec<Repair>,
}

impl EnforcedPlan {
    /// The items that the model sees, every call with its result directly behind it.
    pub fn items<'a>(&'a self, view: &'a Transcript) -> Vec<PlanItem<'a>> {
        pairing::pair_results(self.plan.project(view)).items
    }
}

/// Checks a plan and repairs it where possible. A plan over its budget passes; its tokens show it.
pub fn enforce(
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<EnforcedPlan, PlanViolation> {
    enforce_with(&PinnedEntries::from_transcript(view), view, plan, budget_tokens, settings)
}

/// [`enforce`] with the pinned entries of the session, which saves a pass over the history.
pub fn enforce_with(
    pinned: &PinnedEntries,
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<EnforcedPlan, PlanViolation> {
    shape::check_shape(view, &plan)?;
    budget::check_inserted_text(view, &plan, budget_tokens, settings)?;
    let mut repairs = Vec::new();
    let text = pinned::PinnedText { view, pinned, budget_tokens, settings };
    let plan = text.restore(plan, &mut repairs);
    let missing = pinned::missing_ranges(view, pinned, &kept_ranges(&plan), &mut repairs);
    let plan = reinsert::reinsert(plan, missing);
    let plan = request_end::move_inserts(view, plan, &mut repairs);
    let (tokens, pairing_repairs) = budget::count_tokens(view, &plan);
    Ok(EnforcedPlan { plan, tokens, repairs, pairing_repairs })
}

/// The positions that a plan keeps, changed or not.
fn kept_ranges(plan: &Plan) -> RangeSet {
    let keeps = |action: &&Action| {
        matches!(action, Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. })
    };
    RangeSet::from_ranges(plan.ops.iter().map(|op| &op.action).filter(keeps).map(Action::range))
}
