//! Compactions of the host itself, before an engine plans: old requests that take most of the window, and images and files whose bytes
//! a provider refused.

use ctxhost_engine::EngineAnswer;
use ctxhost_engine_api::{Compaction, Plan, Trigger};
use ctxhost_invariants as invariants;

use crate::context::Context;
use crate::error::ContextError;
use crate::hook::{HookDecision, PendingCompaction};
use crate::outcome::CompactionOutcome;
use crate::policy::CompactionPolicy;
use crate::target::{Budget, Target};

/// The engine name of the compactions that the host makes itself, in records and reports.
const HOST: &str = "host";

impl Context {
    /// Applies a compaction of the host if a pinned request takes most of the budget and the rest does not fit beside it: every engine
    /// has to keep it, so all the others would be left out. The session keeps it whole.
    ///
    /// # Errors
    ///
    /// [`ContextError::Session`]; the session is unchanged.
    pub(crate) fn shorten_long_requests(
        &mut self,
        target: &Target,
        budget: Budget,
    ) -> Result<Option<CompactionOutcome>, ContextError> {
        if target.compaction == CompactionPolicy::Never {
            return Ok(None);
        }
        let (view, settings) = (self.view(), self.settings.clone());
        self.session.update_pinned();
        let pinned = self.session.pinned();
        let plan =
            invariants::shorten_long_requests(pinned, &view, budget.tokens, &settings.invariants);
        plan.map_or(Ok(None), |plan| self.apply_own_plan(plan, target, budget))
    }

    /// Applies a compaction of the host without the older half of images and files, if the provider refused the bytes of the request.
    ///
    /// # Errors
    ///
    /// [`ContextError::Session`]; the session is unchanged.
    pub(crate) fn drop_attachments(
        &mut self,
        target: &Target,
        budget: Budget,
    ) -> Result<Option<CompactionOutcome>, ContextError> {
        if !target.drops_attachments || target.compaction == CompactionPolicy::Never {
            return Ok(None);
        }
        self.session.update_pinned();
        let plan = invariants::drop_old_attachments(self.session.pinned(), &self.view());
        plan.map_or(Ok(None), |plan| self.apply_own_plan(plan, target, budget))
    }

    /// Whether a smaller request is possible by leaving out images and files.
    pub(crate) fn has_old_attachments(&mut self) -> bool {
        self.session.update_pinned();
        invariants::drop_old_attachments(self.session.pinned(), &self.view()).is_some()
    }

    /// Applies a compaction that the host makes itself. `None` if a hook or an invariant refuses it.
    fn apply_own_plan(
        &mut self,
        plan: Plan,
        target: &Target,
        budget: Budget,
    ) -> Result<Option<CompactionOutcome>, ContextError> {
        let (view, settings) = (self.view(), self.settings.clone());
        let trigger = Trigger::Threshold;
        let pending = PendingCompaction {
            session: self.session.reference(),
            view: &view,
            trigger,
            attempt: 1,
            before_tokens: view.total_tokens(),
            budget_tokens: budget.tokens,
        };
        let mut hooks = settings.hooks.iter();
        if hooks.any(|hook| matches!(hook.before_compaction(&pending), HookDecision::Cancel { .. }))
        {
            return Ok(None);
        }
        let mut outcome = CompactionOutcome::new(HOST.to_owned(), &view, trigger);
        let checked = invariants::enforce(&view, plan.clone(), budget.tokens, &settings.invariants);
        // If the invariants refuse it, the engine plans as if there were none.
        let Ok(checked) = checked else { return Ok(None) };
        let answer = EngineAnswer::from_host(HOST, Compaction::Plan(plan));
        let now_ms = settings.clock.now_ms();
        self.apply(&checked, &answer, &mut outcome, (now_ms, self.recorded_window(target)))?;
        settings.hooks.iter().for_each(|hook| hook.after_compaction(&outcome));
        Ok(Some(outcome))
    }
}
