//! What an embedding program may do around a compaction: watch it, call it off, or write the summary.

use std::fmt::Debug;

use ctxhost_engine_api::{Plan, Role, SessionRef, Transcript, Trigger};

use crate::outcome::CompactionOutcome;

/// Subscribes to compactions. Both calls have a default, so that a hook may do one thing only.
pub trait CompactionHook: Send + Sync + Debug {
    /// A compaction is about to be asked for. The first hook that does not proceed decides.
    fn before_compaction(&self, _coming: &PendingCompaction<'_>) -> HookDecision {
        HookDecision::Proceed
    }

    /// A compaction was applied, rejected or not tried.
    fn after_compaction(&self, _outcome: &CompactionOutcome) {}
}

/// A compaction that is about to be asked for.
#[derive(Clone, Debug)]
pub struct PendingCompaction<'a> {
    /// The session.
    pub session: &'a SessionRef,
    /// The live transcript that would be compacted.
    pub view: &'a Transcript,
    /// Why.
    pub trigger: Trigger,
    /// 1 for the first try at this pressure.
    pub attempt: u32,
    /// What the live transcript costs, in tokens without margin.
    pub before_tokens: u64,
    /// What the result must fall below, in tokens without margin.
    pub budget_tokens: u64,
}

/// What a hook wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// Go on.
    Proceed,
    /// Do not compact now. Counts as not tried, not as a failure.
    Cancel {
        /// Why, as a fragment.
        reason: String,
    },
    /// Use this text for the folded history instead of asking an engine. The law holds for it as for
    /// any engine's plan.
    Supply {
        /// The text.
        summary: String,
    },
}

/// The name under which a supplied summary is recorded.
pub(crate) const HOOK_ENGINE: &str = "hook";

/// The newest half of the budget stays as it is; the supplied text stands for the rest.
pub(crate) fn supplied_plan(summary: String, coming: &PendingCompaction<'_>) -> Plan {
    let cut = coming.view.tail_within(coming.budget_tokens / 2);
    let mut plan = Plan::default();
    plan.insert(Role::User, summary, 0..cut).keep(cut..coming.view.len() as u64);
    plan
}
