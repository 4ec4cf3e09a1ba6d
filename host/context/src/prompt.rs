//! A prepared prompt.

use std::time::Duration;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{PlanItem, PlanNote, Transcript};

use crate::outcome::CompactionOutcome;
use crate::target::Budget;
use ctxhost_invariants::{self as invariants, EnforcedPlan};

/// A checked plan and how it was made.
#[derive(Debug)]
pub struct Prompt {
    /// The transcript that it was made from.
    pub view: Transcript,
    /// The plan after repairs.
    pub checked: EnforcedPlan,
    /// The engine that made it.
    pub engine: String,
    /// Why the configured engine did not make it.
    pub fallback: Option<String>,
    /// The compactions that were attempted for it.
    pub compactions: Vec<CompactionOutcome>,
    /// Its budget, in estimated tokens; includes the answer's reserve if that was used.
    pub budget_tokens: u64,
    /// The engine's notes on what no operation of the plan shows.
    pub notes: Vec<PlanNote>,
    /// Plans that the invariants rejected.
    pub rejected_plans: u64,
    /// The time inside engines.
    pub took: Duration,
}

/// What the next prompt will be, unless the host compacts before it.
#[derive(Clone, Debug)]
pub struct PromptPreview {
    /// The transcript that it is made from.
    pub view: Transcript,
    /// The engine that makes it.
    pub engine: String,
    /// Its size, in estimated tokens.
    pub tokens: u64,
    /// Its budget.
    pub budget: Budget,
    /// Whether a compaction comes first, because the prompt does not fit or the engine recommends it.
    pub needs_compaction: bool,
}

impl PromptPreview {
    /// The preview of a prompt that has the whole history.
    pub fn of_history(view: Transcript, engine: String, budget: Budget) -> PromptPreview {
        let tokens = view.total_tokens();
        let needs_compaction = tokens > budget.tokens;
        PromptPreview { view, engine, tokens, budget, needs_compaction }
    }
}

impl Prompt {
    /// The items that the model sees.
    pub fn items(&self) -> Vec<PlanItem<'_>> {
        self.checked.items(&self.view)
    }

    /// What the engine puts before the system prompt of this request; counted in its tokens.
    pub fn system_addition(&self) -> Option<&str> {
        let addition = self.checked.plan.extras.system_prompt_addition.as_deref();
        addition.filter(|text| !text.trim().is_empty())
    }

    /// The size of [`system_addition`](Self::system_addition), in estimated tokens.
    pub fn system_addition_tokens(&self) -> u64 {
        invariants::system_addition_tokens(&self.checked.plan)
    }
}

/// The engine's notes, and one about what it puts before the system prompt.
pub(crate) fn notes_of(mut notes: Vec<PlanNote>, checked: &EnforcedPlan) -> Vec<PlanNote> {
    let added_tokens = invariants::system_addition_tokens(&checked.plan);
    if added_tokens > 0 {
        let detail = format!("{} tokens before it", group_thousands(added_tokens));
        notes.push(PlanNote::new("system prompt", detail));
    }
    notes
}
