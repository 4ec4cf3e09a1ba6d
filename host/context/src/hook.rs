//! Compaction hooks: an embedding program may observe or cancel a compaction, or supply the summary.

use std::fmt::Debug;

use ctxhost_engine_api::{Plan, Role, SessionRef, Transcript, Trigger};

use crate::outcome::CompactionOutcome;

/// A compaction hook. Both methods have defaults.
pub trait CompactionHook: Send + Sync + Debug {
    /// Called before a compaction is requested. The first hook that does not proceed decides.
    fn before_compaction(&self, _pending: &PendingCompaction<'_>) -> HookDecision {
        HookDecision::Proceed
    }

    /// Called after a compaction was applied, rejected or not tried.
    fn after_compaction(&self, _outcome: &CompactionOutcome) {}
}

/// A compaction that is about to be requested.
#[derive(Clone, Debug)]
pub struct PendingCompaction<'a> {
    pub session: &'a SessionRef,
    pub view: &'a Transcript,
    pub trigger: Trigger,
    /// From 1, counted per prompt or manual request.
    pub attempt: u32,
    /// The size of the live transcript, in estimated tokens.
    pub before_tokens: u64,
    /// The size that the result must fall below, in estimated tokens.
    pub budget_tokens: u64,
}

/// The decision of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// Continue with the next hook or the engine.
    Proceed,
    /// Cancel the compaction. It counts as not tried, not as a failure.
    Cancel {
        /// The reason, as a fragment.
        reason: String,
    },
    /// Use this summary of the folded history instead of an engine's. It must satisfy the same invariants.
    Supply { summary: String },
}

/// The engine name of supplied summaries in records.
pub(crate) const HOOK_ENGINE: &str = "hook";

/// The plan of a supplied summary: it replaces all but the newest entries, up to half of the budget.
pub(crate) fn supplied_plan(summary: String, pending: &PendingCompaction<'_>) -> Plan {
    // Half of the budget: the summary and the turns to come need room as well, or the next request compacts again.
    let cut = pending.view.tail_within(pending.budget_tokens / 2);
    let mut plan = Plan::default();
    plan.insert(Role::User, summary, 0..cut).keep(cut..pending.view.len() as u64);
    plan
}
