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
//! typed [`Violation`]; the engine is at fault and the runtime says so. A plan that leaves out what
//! must stay, or cuts between a call and its result, is mended, and each [`Repair`] is reported.
//! [`audit`] then looks at the finished items with other eyes: it shares no code with the repairs.
//!
//! Judging a plan costs one step per operation and one per kept entry; [`Anchors`] and [`Auditor`],
//! kept beside a session, spare even the one pass over the history that finds the pinned entries.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod settings;
mod verdict;

mod shape;

mod budget;
mod keep;
mod pairing;
mod span;
mod weave;

mod audit;
mod rung;

pub mod progress;

#[cfg(test)]
mod tests;

use ctxhost_engine_api::{Action, Item, Plan, Transcript};

pub use audit::{Auditor, Breach, audit};
pub use keep::Anchors;
pub use rung::{CannotFit, LedgerRoom, WriteLedger, last_rung};
pub use settings::{BadShare, LawSettings, Share};
use span::Spans;
pub use verdict::{Because, Repair, Violation};

/// A plan that the law has passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Lawful {
    /// The plan, mended where it had to be.
    pub plan: Plan,
    /// What its items cost by the host's own count, without margin.
    pub tokens: u64,
    /// What was mended in the plan; empty for a plan that was lawful as it came.
    pub repairs: Vec<Repair>,
    /// What the recorded conversation itself needed, whatever the plan: results moved to their
    /// calls, missing ones added, orphans left out. The engine is not to blame for these.
    pub settled: Vec<Repair>,
}

impl Lawful {
    /// The items that the model sees, every call with its result directly behind it.
    pub fn items<'a>(&'a self, view: &'a Transcript) -> Vec<Item<'a>> {
        pairing::settle(self.plan.project(view)).items
    }
}

/// Checks a plan and, where it can, mends it. A plan over its budget passes: the tokens say so.
pub fn enforce(
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &LawSettings,
) -> Result<Lawful, Violation> {
    enforce_with(&Anchors::of(view), view, plan, budget_tokens, settings)
}

/// [`enforce`] with the anchors of the session at hand, so that no history is walked.
pub fn enforce_with(
    anchors: &Anchors,
    view: &Transcript,
    plan: Plan,
    budget_tokens: u64,
    settings: &LawSettings,
) -> Result<Lawful, Violation> {
    shape::check(view, &plan)?;
    budget::check_wordiness(view, &plan, budget_tokens, settings)?;
    let mut repairs = Vec::new();
    let words = keep::Words { view, anchors, budget_tokens, settings };
    let plan = words.restore(plan, &mut repairs);
    let missing = keep::missing(view, anchors, &kept_by(&plan), &mut repairs);
    let plan = weave::put_back(plan, missing);
    let (tokens, settled) = budget::count(view, &plan);
    Ok(Lawful { plan, tokens, repairs, settled })
}

/// The positions that a plan keeps, in whatever form.
fn kept_by(plan: &Plan) -> Spans {
    let keeps = |action: &&Action| {
        matches!(action, Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. })
    };
    Spans::of(plan.ops.iter().map(|op| &op.action).filter(keeps).map(Action::range))
}
