//! A plan of an engine that the invariants accept.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{AssembleRequest, Plan, Transcript};

use super::{PromptProgress, PromptRequest};
use crate::context::Context;
use crate::error::ContextError;
use crate::prompt::{Prompt, notes_of};
use ctxhost_engine::{AssembleContext, EngineAnswer, EngineContext, OnRefusal};
use ctxhost_invariants::{self as invariants, EnforcedPlan, Repair};

impl Context {
    /// Assembles until the invariants accept a plan: at most once with each engine.
    ///
    /// The engine's budget is the allowance without what the host adds itself, so an engine may use it up. The host adds the
    /// edited instructions that the plan does not keep.
    pub(super) async fn assemble(
        &mut self,
        request: PromptRequest<'_>,
        view: &Transcript,
        allowance_tokens: u64,
    ) -> Result<AssembledPlan, ContextError> {
        let PromptRequest { target, model, budget } = request;
        let settings = self.settings.clone();
        let mut rejected_before = 0;
        self.instruction_edits.update(self.session.session());
        let edited = self.instruction_edits.in_view(view, budget.tokens);
        let mut added_tokens = edited.folded_tokens();
        self.session.update_pinned();
        loop {
            let pinned = self.session.pinned();
            let engine_budget =
                pinned.request_budget(allowance_tokens).saturating_sub(added_tokens);
            let assemble = Some(AssembleContext {
                pinned,
                budget_tokens: budget.tokens,
                invariants: &settings.invariants,
                on_refusal: OnRefusal::Quarantine,
            });
            let call = AssembleRequest {
                session: self.session.reference().clone(),
                budget: engine_budget,
                reserve_tokens: budget.reserve_tokens,
                prompt: self.session.prompt(),
                model: model.clone(),
                available_tools: target.tools.clone(),
                now_ms: settings.clock.now_ms(),
                ..AssembleRequest::default()
            };
            let context = EngineContext { transcript: view, assemble };
            let mut answer = self.engine.ask(context, call).await?;
            let plan = answer.value.clone();
            match invariants::enforce_with(pinned, view, plan, budget.tokens, &settings.invariants)
            {
                Ok(mut checked) => {
                    // Counts for the trial of a new engine: its plan passed the invariants.
                    self.engine.record_success(&answer);
                    checked.repairs.splice(0..0, std::mem::take(&mut answer.repairs));
                    answer.refused_plans += rejected_before;
                    let missing_tokens = edited.missing_tokens(&checked.plan);
                    let is_over = checked.tokens + missing_tokens > budget.tokens;
                    if is_over && missing_tokens > added_tokens {
                        // The plan leaves out what has to be repeated, and the engine did not know its size.
                        added_tokens = missing_tokens;
                        rejected_before = answer.refused_plans;
                        continue;
                    }
                    let checked = edited.add_missing(checked, view);
                    return Ok(AssembledPlan { answer, checked });
                }
                Err(violation) => {
                    rejected_before += answer.refused_plans + 1;
                    self.engine.reject(&answer, "assemble", &violation.to_string())?;
                    self.ingest().await?;
                }
            }
        }
    }
}

/// A checked plan and the engine's answer.
pub(super) struct AssembledPlan {
    pub(super) answer: EngineAnswer<Plan>,
    pub(super) checked: EnforcedPlan,
}

impl AssembledPlan {
    pub(super) fn wants_compaction(&self) -> bool {
        self.answer.value.extras.compaction_wanted.is_some()
    }

    pub(super) fn reinserted_tokens(&self, view: &Transcript) -> u64 {
        let tokens = |repair: &Repair| match repair {
            Repair::Reinserted { entries, .. } => view.tokens(entries.clone()),
            _ => 0,
        };
        self.checked.repairs.iter().map(tokens).sum()
    }

    /// Describes by how much it exceeds the budget.
    pub(super) fn over_budget(&self, budget_tokens: u64) -> String {
        let tokens = self.checked.tokens;
        format!(
            "plan of {} needs {} tokens, {} over the budget of {}",
            self.answer.engine,
            group_thousands(tokens),
            group_thousands(tokens.saturating_sub(budget_tokens)),
            group_thousands(budget_tokens),
        )
    }

    pub(super) fn into_prompt(
        self,
        view: Transcript,
        budget_tokens: u64,
        progress: &mut PromptProgress,
    ) -> Box<Prompt> {
        let progress = std::mem::take(progress);
        let notes = notes_of(self.answer.value.extras.notes, &self.checked);
        Box::new(Prompt {
            budget_tokens,
            view,
            checked: self.checked,
            engine: self.answer.engine,
            fallback: self.answer.fallback,
            compactions: progress.compactions,
            notes,
            rejected_plans: progress.rejected_plans,
            took: progress.took,
        })
    }
}
