//! A prompt: a plan that obeys the invariants, and how it came to be.

use std::time::Duration;

use ctxhost_engine_api::{PlanItem, PlanNote, Transcript};

use crate::outcome::CompactionOutcome;
use ctxhost_invariants::EnforcedPlan;

/// A plan that obeys the invariants, and how it came to be.
#[derive(Debug)]
pub struct Prompt {
    /// The transcript it was made from.
    pub view: Transcript,
    /// The plan after repairs.
    pub checked: EnforcedPlan,
    /// The engine that made it.
    pub engine: String,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// The compactions that were tried for it.
    pub compactions: Vec<CompactionOutcome>,
    /// What it had to fit, as entries count: more than the budget where the answer's reserve was used.
    pub budget_tokens: u64,
    /// What the engine did that no operation of the plan shows.
    pub notes: Vec<PlanNote>,
    /// Plans that the invariants refused on the way.
    pub rejected_plans: u64,
    /// Time inside engines.
    pub took: Duration,
}

impl Prompt {
    /// The items that the model sees.
    pub fn items(&self) -> Vec<PlanItem<'_>> {
        self.checked.items(&self.view)
    }
}
