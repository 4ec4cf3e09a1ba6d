//! One prompt: ingest what is new, assemble, check the invariants, compact while it does not fit.

use std::time::Duration;

use ctxhost_engine_api::{AssembleRequest, EngineError, ModelRef, Plan, Transcript};

use crate::compact::{CompactionRequest, MAX_COMPACTIONS};
use crate::context::Context;
use crate::error::ContextError;
use crate::outcome::{CompactionOutcome, CompactionVerdict};
use crate::policy::CompactionPolicy;
use crate::prompt::Prompt;
use crate::target::{Budget, Target};
use ctxhost_engine::{
    AssembleContext, EngineAnswer, EngineContext, OnRefusal, SlotError, group_thousands,
};
use ctxhost_invariants::{
    self as invariants, EmergencyTrimError, EnforcedPlan, InvariantSettings, Repair,
};
use ctxhost_retention as retention;

/// The name under which the host's own emergency trim signs.
pub const EMERGENCY_TRIM: &str = "last rung";

/// What a prompt is made for.
#[derive(Clone, Copy)]
struct PromptRequest<'a> {
    target: &'a Target,
    model: &'a ModelRef,
    budget: Budget,
}

impl Context {
    /// Prepares the next prompt.
    ///
    /// # Errors
    ///
    /// [`ContextError`]; the session is as it was, except for compactions that were applied.
    pub async fn prepare(&mut self, target: &Target) -> Result<Prompt, ContextError> {
        let budget = self.budget(target);
        let model = self.model_ref(target);
        let request = PromptRequest { target, model: &model, budget };
        let mut work = PromptProgress { took: self.ingest().await?, ..PromptProgress::default() };
        let prompt = match self.prepare_with_budget(request, &mut work).await? {
            Some(prompt) => prompt,
            None => self.prepare_over_budget(request, work).await?,
        };
        self.session.record_cache_use(self.settings.clock.now_ms());
        Ok(prompt)
    }

    /// Prepares a prompt where the budget holds none: with the answer's reserve, else by the emergency trim.
    async fn prepare_over_budget(
        &mut self,
        request: PromptRequest<'_>,
        mut work: PromptProgress,
    ) -> Result<Prompt, ContextError> {
        let budget = request.budget;
        if budget.spare_tokens > 0 {
            let whole = PromptRequest { budget: budget.without_reserve(), ..request };
            if let Some(prompt) = self.prepare_with_budget(whole, &mut work).await? {
                return Ok(prompt);
            }
            // Trimmed to what leaves room for an answer, as long as that is possible.
            if emergency_trim_plan(&self.view(), budget.tokens, &self.settings.invariants).is_err()
            {
                return self.emergency_trim(whole, work);
            }
        }
        self.emergency_trim(request, work)
    }

    /// Prepares a prompt with the engine's plans and compactions; `None` where none of them fits.
    async fn prepare_with_budget(
        &mut self,
        request: PromptRequest<'_>,
        work: &mut PromptProgress,
    ) -> Result<Option<Prompt>, ContextError> {
        let budget_tokens = request.budget.tokens;
        let policy = request.target.compaction;
        let mut allowance_tokens = budget_tokens;
        for attempt in 1..=MAX_COMPACTIONS + 1 {
            let view = self.view();
            let assembled = self.assemble(request, &view, allowance_tokens).await?;
            work.took += assembled.served.elapsed;
            work.rejected_plans += assembled.served.refused_plans;
            let fits = assembled.lawful.tokens <= budget_tokens;
            if !fits {
                work.over_budget = Some(assembled.over_budget(budget_tokens));
            }
            let may_improve = attempt == 1 && policy == CompactionPolicy::WhenWanted;
            if fits && !(may_improve && assembled.wants_compaction()) {
                return Ok(Some(assembled.into_prompt(view, budget_tokens, work)));
            }
            if !fits && self.engine.serving_info().owns_compaction {
                // It has promised to fit. What the host put back it could not have counted, so it is asked again
                // with that much less.
                let overshoot_tokens = assembled.lawful.tokens - budget_tokens;
                let less_tokens = overshoot_tokens.max(assembled.reinserted_tokens(&view));
                allowance_tokens = allowance_tokens.saturating_sub(less_tokens);
                continue;
            }
            if policy == CompactionPolicy::Never {
                let tokens = assembled.lawful.tokens;
                return Err(ContextError::CompactionRequired { tokens, budget_tokens });
            }
            if attempt > MAX_COMPACTIONS || !self.compact_for_prompt(request, attempt, work).await?
            {
                return Ok(fits.then(|| assembled.into_prompt(view, budget_tokens, work)));
            }
        }
        Ok(None)
    }

    /// Whether the next prompt would be better for a compaction, or would not fit without one.
    ///
    /// # Errors
    ///
    /// [`ContextError`].
    pub async fn wants_compaction(&mut self, target: &Target) -> Result<bool, ContextError> {
        let budget = self.budget(target);
        self.ingest().await?;
        let (view, model) = (self.view(), self.model_ref(target));
        let request = PromptRequest { target, model: &model, budget };
        let assembled = self.assemble(request, &view, budget.tokens).await?;
        Ok(assembled.lawful.tokens > budget.tokens || assembled.wants_compaction())
    }

    /// Whether a compaction comes before the next prompt, because that would not fit without one.
    ///
    /// # Errors
    ///
    /// [`ContextError`].
    pub async fn needs_compaction(&mut self, target: &Target) -> Result<bool, ContextError> {
        let budget = self.budget(target);
        let (view, model) = (self.view(), self.model_ref(target));
        self.session.update_pinned();
        let compacts = target.compaction != CompactionPolicy::Never
            && !self.engine.serving_info().owns_compaction;
        let most_tokens = view.total_tokens() + self.session.pinned().added_tokens();
        if !compacts || most_tokens <= budget.tokens {
            return Ok(false);
        }
        self.ingest().await?;
        let request = PromptRequest { target, model: &model, budget };
        let assembled = self.assemble(request, &view, budget.tokens).await?;
        Ok(assembled.lawful.tokens > budget.tokens)
    }

    /// Tries a compaction; whether it makes sense to assemble again.
    async fn compact_for_prompt(
        &mut self,
        request: PromptRequest<'_>,
        attempt: u32,
        work: &mut PromptProgress,
    ) -> Result<bool, ContextError> {
        let trigger = request.target.trigger;
        let compaction = CompactionRequest {
            model: request.model,
            budget: request.budget,
            trigger,
            attempt,
            focus: None,
        };
        let outcome = self.compact_once(compaction).await?;
        work.took += outcome.took;
        let goes_on = outcome.verdict.allows_retry();
        work.compactions.push(outcome);
        work.took += self.ingest().await?;
        Ok(goes_on)
    }

    /// Assembles until the invariants accept a plan: at most once with each engine.
    ///
    /// What the host adds itself is taken off the allowance, so an engine may use its budget up.
    async fn assemble(
        &mut self,
        request: PromptRequest<'_>,
        view: &Transcript,
        allowance_tokens: u64,
    ) -> Result<AssembledPlan, ContextError> {
        let PromptRequest { target, model, budget } = request;
        let settings = self.settings.clone();
        let mut refused_before = 0;
        self.session.update_pinned();
        loop {
            let anchors = self.session.pinned();
            let budget_of_engine = anchors.request_budget(allowance_tokens);
            let assemble = Some(AssembleContext {
                pinned: anchors,
                budget_tokens: budget.tokens,
                invariants: &settings.invariants,
                on_refusal: OnRefusal::Quarantine,
            });
            let call = AssembleRequest {
                session: self.session.reference().clone(),
                budget: budget_of_engine,
                reserve_tokens: budget.reserve_tokens,
                prompt: self.session.prompt(),
                model: model.clone(),
                available_tools: target.tools.clone(),
                now_ms: settings.clock.now_ms(),
                ..AssembleRequest::default()
            };
            let context = EngineContext { transcript: view, assemble };
            let mut served = self.engine.ask(context, call).await?;
            let plan = served.value.clone();
            match invariants::enforce_with(anchors, view, plan, budget.tokens, &settings.invariants)
            {
                Ok(mut lawful) => {
                    self.engine.record_success(&served);
                    lawful.repairs.splice(0..0, std::mem::take(&mut served.repairs));
                    served.refused_plans += refused_before;
                    return Ok(AssembledPlan { served, lawful });
                }
                Err(violation) => {
                    refused_before += served.refused_plans + 1;
                    self.engine.reject(&served, "assemble", &violation.to_string())?;
                    self.ingest().await?;
                }
            }
        }
    }

    /// A prompt without any engine, where nothing else fits.
    fn emergency_trim(
        &mut self,
        request: PromptRequest<'_>,
        work: PromptProgress,
    ) -> Result<Prompt, ContextError> {
        let PromptRequest { model, budget, .. } = request;
        let view = self.view();
        let plan = emergency_trim_plan(&view, budget.tokens, &self.settings.invariants)?;
        let lawful = invariants::enforce(&view, plan, budget.tokens, &self.settings.invariants)
            .map_err(|violation| EngineError::failed(violation.to_string()))
            .map_err(|error| SlotError::from_engine(EMERGENCY_TRIM, "assemble", error))?;
        let engine = self.engine.serving_info().id;
        let why = work.trim_reason(&engine);
        let session = self.id();
        if self.is_trim_logged {
            tracing::debug!(session, why, kept_tokens = lawful.tokens, "emergency trim");
        } else {
            tracing::warn!(
                session,
                engine,
                why,
                tokens = view.total_tokens(),
                kept_tokens = lawful.tokens,
                budget_tokens = budget.tokens,
                reserve_tokens = budget.reserve_tokens,
                model = model.id,
                window_tokens = model.window_tokens,
                "emergency trim: neither a plan nor a compaction fits the budget; use a larger window, or a smaller system prompt and fewer tools. Later trims of this session are logged at debug level"
            );
        }
        self.is_trim_logged = true;
        Ok(Prompt {
            budget_tokens: budget.tokens,
            view,
            checked: lawful,
            engine: EMERGENCY_TRIM.into(),
            fallback: Some(why),
            compactions: work.compactions,
            notes: Vec::new(),
            rejected_plans: work.rejected_plans,
            took: work.took,
        })
    }
}

/// The plan of the last rung, with the ledger of what it leaves out in the engines' words.
///
/// # Errors
///
/// [`EmergencyTrimError`] where not even what must stay fits.
pub fn emergency_trim_plan(
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<Plan, EmergencyTrimError> {
    invariants::emergency_trim(view, budget_tokens, settings, &|left_out, room| {
        retention::render_ledger(view, left_out, room.tokens, room.request_tokens)
    })
}

/// What went into a prompt so far.
#[derive(Default)]
struct PromptProgress {
    compactions: Vec<CompactionOutcome>,
    rejected_plans: u64,
    took: Duration,
    /// By how much the last plan that did not fit was over, in words.
    over_budget: Option<String>,
}

impl PromptProgress {
    /// Why nothing but the emergency trim is left, in words.
    fn trim_reason(&self, engine: &str) -> String {
        let over = self.over_budget.clone();
        let over = over.unwrap_or_else(|| format!("plan of {engine} is over its budget"));
        match self.compactions.last() {
            Some(CompactionOutcome {
                engine,
                verdict:
                    CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason },
                ..
            }) => format!("{over}; compact of {engine}: {reason}"),
            _ => over,
        }
    }
}

/// A plan that passed the invariants, with the engine that made it.
struct AssembledPlan {
    served: EngineAnswer<Plan>,
    lawful: EnforcedPlan,
}

impl AssembledPlan {
    fn wants_compaction(&self) -> bool {
        self.served.value.extras.compaction_wanted.is_some()
    }

    fn reinserted_tokens(&self, view: &Transcript) -> u64 {
        let tokens = |repair: &Repair| match repair {
            Repair::Reinserted { entries, .. } => view.tokens(entries.clone()),
            _ => 0,
        };
        self.lawful.repairs.iter().map(tokens).sum()
    }

    /// By how much it is over the budget, in words.
    fn over_budget(&self, budget_tokens: u64) -> String {
        let tokens = self.lawful.tokens;
        format!(
            "plan of {} needs {} tokens, {} over the budget of {}",
            self.served.engine,
            group_thousands(tokens),
            group_thousands(tokens.saturating_sub(budget_tokens)),
            group_thousands(budget_tokens),
        )
    }

    fn into_prompt(
        self,
        view: Transcript,
        budget_tokens: u64,
        work: &mut PromptProgress,
    ) -> Prompt {
        let work = std::mem::take(work);
        Prompt {
            budget_tokens,
            view,
            checked: self.lawful,
            engine: self.served.engine,
            fallback: self.served.fallback,
            compactions: work.compactions,
            notes: self.served.value.extras.notes,
            rejected_plans: work.rejected_plans,
            took: work.took,
        }
    }
}

#[cfg(test)]
mod tests;
