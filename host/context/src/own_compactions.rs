//! Compactions of the host itself, before an engine plans: old requests that take most of the window, and images and files whose bytes
//! a provider refused.

use ctxhost_engine::EngineAnswer;
use ctxhost_engine_api::{Compaction, Plan, Trigger};
use ctxhost_invariants::{self as invariants, AttachmentCut, InvariantSettings};

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
        plan.map_or(Ok(None), |plan| {
            self.apply_own_plan(plan, target, budget, &settings.invariants)
        })
    }

    /// Applies a compaction of the host without images and files, if the provider refused the bytes of the request.
    ///
    /// # Errors
    ///
    /// [`ContextError::Session`]; the session is unchanged.
    pub(crate) fn drop_attachments(
        &mut self,
        target: &Target,
        budget: Budget,
    ) -> Result<Option<CompactionOutcome>, ContextError> {
        let Some(cut) = target.attachment_cut else { return Ok(None) };
        if target.compaction == CompactionPolicy::Never {
            return Ok(None);
        }
        self.session.update_pinned();
        let plan = invariants::drop_attachments(self.session.pinned(), &self.view(), cut);
        let Some(plan) = plan else { return Ok(None) };
        // The provider takes no request with them, so also pinned messages lose theirs; their texts stay whole.
        let limits = self.settings.invariants.with_shorter_texts();
        self.apply_own_plan(plan, target, budget, &limits)
    }

    /// Which images and files the next request leaves out after a refusal of the bytes of one for `target`; `None` if
    /// there are none.
    pub(crate) fn next_attachment_cut(&mut self, target: &Target) -> Option<AttachmentCut> {
        if target.compaction == CompactionPolicy::Never {
            return None;
        }
        self.session.update_pinned();
        AttachmentCut::after(target.attachment_cut, self.session.pinned(), &self.view())
    }

    /// Applies a compaction that the host makes itself. `None` if a hook or an invariant refuses it.
    fn apply_own_plan(
        &mut self,
        plan: Plan,
        target: &Target,
        budget: Budget,
        limits: &InvariantSettings,
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
        let checked = invariants::enforce(&view, plan.clone(), budget.tokens, limits);
        // If the invariants refuse it, the engine plans as if there were none.
        let Ok(checked) = checked else { return Ok(None) };
        let answer = EngineAnswer::from_host(HOST, Compaction::Plan(plan));
        let now_ms = settings.clock.now_ms();
        self.apply(&checked, &answer, &mut outcome, (now_ms, self.recorded_window(target)))?;
        settings.hooks.iter().for_each(|hook| hook.after_compaction(&outcome));
        Ok(Some(outcome))
    }
}
