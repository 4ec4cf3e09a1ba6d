//! Prepares a prompt: ingest, assemble, enforce the invariants, compact while it does not fit.

use std::time::Duration;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{EngineError, Entry, Message, ModelRef, Plan, Transcript};

use self::assembled::AssembledPlan;
use crate::compact::{CompactionRequest, MAX_COMPACTIONS};
use crate::context::Context;
use crate::error::ContextError;
use crate::outcome::{CompactionOutcome, CompactionVerdict};
use crate::policy::CompactionPolicy;
use crate::prompt::{Prompt, PromptPreview};
use crate::target::{Budget, Target};
use ctxhost_engine::{OnEngineError, SlotError};
use ctxhost_invariants::{self as invariants, EmergencyTrimError, InvariantSettings};
use ctxhost_retention as retention;

/// The engine name of the host's emergency trim. The value is part of reports and metrics, so it stays.
pub const EMERGENCY_TRIM: &str = "emergency trim";

/// The parameters of a prompt.
#[derive(Clone, Copy)]
struct PromptRequest<'a> {
    target: &'a Target,
    model: &'a ModelRef,
    budget: Budget,
}

impl Context {
    /// Prepares the next prompt, also where the bundled engine fails.
    ///
    /// # Errors
    ///
    /// [`ContextError`]; the session is unchanged except for applied compactions.
    pub async fn prepare(&mut self, target: &Target) -> Result<Prompt, ContextError> {
        let budget = self.budget(target);
        let model = self.model_ref(target);
        let request = PromptRequest { target, model: &model, budget };
        let mut progress = PromptProgress::new(budget);
        let prompt = match self.prepare_with_engine(request, &mut progress).await {
            Ok(Some(prompt)) => *prompt,
            Ok(None) => self.emergency_trim(target, &model, budget, progress)?,
            // A session whose every request failed would be lost.
            Err(ContextError::Slot(error @ SlotError::Engine { .. }))
                if self.engine.on_error() == OnEngineError::Fallback =>
            {
                progress.engine_error = Some(error.to_string());
                self.emergency_trim(target, &model, budget, progress)?
            }
            Err(error) => return Err(error),
        };
        // Only now: after an error no request is sent.
        self.record_prompt(&prompt);
        self.session.record_cache_use(self.settings.clock.now_ms());
        Ok(prompt)
    }

    /// Prepares a prompt from plans of the engines; `None` if none fits.
    async fn prepare_with_engine(
        &mut self,
        mut request: PromptRequest<'_>,
        progress: &mut PromptProgress,
    ) -> Result<Option<Box<Prompt>>, ContextError> {
        progress.took += self.ingest().await?;
        for shorten in [Context::drop_attachments, Context::shorten_long_requests] {
            if let Some(outcome) = shorten(self, request.target, request.budget)? {
                progress.compactions.push(outcome);
                progress.took += self.ingest().await?;
            }
        }
        self.limits.begin_request();
        loop {
            let view = self.view();
            let assembled = self.assemble(request, &view, progress.allowance_tokens).await?;
            match self.next_step(request, view, assembled, progress).await? {
                NextStep::Send(prompt) => return Ok(Some(prompt)),
                NextStep::Assemble => {}
                NextStep::Trim if request.budget.spare_tokens > 0 => {
                    // The reserve of the answer comes before any trim.
                    request.budget = request.budget.without_reserve();
                    progress.begin_rounds(request.budget);
                }
                NextStep::Trim => return Ok(None),
            }
        }
    }

    /// Decides about an assembled plan, and compacts if another one may be better.
    async fn next_step(
        &mut self,
        request: PromptRequest<'_>,
        view: Transcript,
        assembled: AssembledPlan,
        progress: &mut PromptProgress,
    ) -> Result<NextStep, ContextError> {
        let budget_tokens = request.budget.tokens;
        let policy = request.target.compaction;
        progress.took += assembled.answer.elapsed;
        progress.rejected_plans += assembled.answer.refused_plans;
        progress.round += 1;
        // One more round than compactions: the last one assembles only.
        let is_last = progress.round > MAX_COMPACTIONS;
        let fits = assembled.checked.tokens <= budget_tokens;
        if !fits {
            progress.over_budget = Some(assembled.over_budget(budget_tokens));
        }
        // A recommendation is followed once; another round would only delay the answer.
        let may_improve = progress.round == 1 && policy == CompactionPolicy::WhenWanted;
        if fits && !(may_improve && assembled.wants_compaction()) {
            return Ok(NextStep::Send(assembled.into_prompt(view, budget_tokens, progress)));
        }
        if !fits && self.engine.serving_info().owns_compaction {
            // The engine promises to fit, but could not count what the host reinserted. It is called
            // again with a budget reduced by that.
            let overshoot_tokens = assembled.checked.tokens - budget_tokens;
            let excess_tokens = overshoot_tokens.max(assembled.reinserted_tokens(&view));
            progress.allowance_tokens = progress.allowance_tokens.saturating_sub(excess_tokens);
            return Ok(if is_last { NextStep::Trim } else { NextStep::Assemble });
        }
        // The user decides, so the turn ends with the sizes instead of a trim.
        if policy == CompactionPolicy::Never {
            let tokens = assembled.checked.tokens;
            return Err(ContextError::CompactionRequired { tokens, budget_tokens });
        }
        if !is_last && self.compact_for_prompt(request, progress).await? {
            return Ok(NextStep::Assemble);
        }
        Ok(if fits {
            NextStep::Send(assembled.into_prompt(view, budget_tokens, progress))
        } else {
            NextStep::Trim
        })
    }

    /// Whether the engine recommends a compaction, or the next prompt needs one.
    pub async fn wants_compaction(&mut self, target: &Target) -> Result<bool, ContextError> {
        let budget = self.budget(target);
        self.ingest().await?;
        let (view, model) = (self.view(), self.model_ref(target));
        let request = PromptRequest { target, model: &model, budget };
        let assembled = self.assemble(request, &view, budget.tokens).await?;
        Ok(assembled.checked.tokens > budget.tokens || assembled.wants_compaction())
    }

    /// What the next prompt will be. The engine is asked only if the history exceeds the budget. The session is unchanged.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] of the engine.
    pub async fn preview(&mut self, target: &Target) -> Result<PromptPreview, ContextError> {
        let budget = self.budget(target);
        let view = self.view();
        if view.total_tokens() <= budget.tokens {
            let engine = self.engine.serving_info().id;
            return Ok(PromptPreview::of_history(view, engine, budget));
        }
        self.ingest().await?;
        let model = self.model_ref(target);
        let request = PromptRequest { target, model: &model, budget };
        let assembled = self.assemble(request, &view, budget.tokens).await?;
        // An engine that owns compaction is asked again until it fits.
        let fits =
            assembled.checked.tokens <= budget.tokens || self.engine.serving_info().owns_compaction;
        let is_wanted =
            target.compaction == CompactionPolicy::WhenWanted && assembled.wants_compaction();
        Ok(PromptPreview {
            view,
            tokens: assembled.checked.tokens,
            engine: assembled.answer.engine,
            budget,
            needs_compaction: !fits || is_wanted,
        })
    }

    /// Whether the next prompt needs a compaction.
    pub async fn needs_compaction(&mut self, target: &Target) -> Result<bool, ContextError> {
        let budget = self.budget(target);
        let (view, model) = (self.view(), self.model_ref(target));
        self.session.update_pinned();
        let compacts = target.compaction != CompactionPolicy::Never
            && !self.engine.serving_info().owns_compaction;
        // Most sessions are far below the budget: the engine is not called for them.
        let max_tokens = view.total_tokens() + self.session.pinned().added_tokens();
        if !compacts || max_tokens <= budget.tokens {
            return Ok(false);
        }
        self.ingest().await?;
        let request = PromptRequest { target, model: &model, budget };
        let assembled = self.assemble(request, &view, budget.tokens).await?;
        Ok(assembled.checked.tokens > budget.tokens)
    }

    /// Attempts a compaction; returns whether to assemble again.
    async fn compact_for_prompt(
        &mut self,
        request: PromptRequest<'_>,
        progress: &mut PromptProgress,
    ) -> Result<bool, ContextError> {
        let compaction = CompactionRequest {
            model: request.model,
            budget: request.budget,
            window_tokens: self.recorded_window(request.target),
            trigger: request.target.trigger,
            attempt: progress.round,
            focus: None,
        };
        let outcome = self.compact_once(compaction).await?;
        progress.took += outcome.took;
        let retries = outcome.verdict.allows_retry();
        progress.compactions.push(outcome);
        progress.took += self.ingest().await?;
        Ok(retries)
    }

    /// The budget of an emergency trim: the pinned entries get what they need in full if that may fit the window. A
    /// provider that counts more refuses the request, and only then are their texts shortened.
    fn trim_budget(&self, target: &Target, view: &Transcript, budget: Budget) -> Budget {
        let tokens = invariants::pinned_tokens(view);
        let is_within_target = target.max_tokens.is_none_or(|max_tokens| tokens <= max_tokens);
        if tokens <= budget.tokens || !target.is_reserve_usable || !is_within_target {
            return budget;
        }
        // How large a file is, only its provider knows.
        let certain_tokens = tokens.saturating_sub(newest_files_tokens(view));
        let request_tokens = target.overhead_tokens.saturating_add(certain_tokens);
        let may_fit = certain_tokens <= budget.without_reserve().tokens
            || self.expected_tokens(request_tokens) <= self.bounding_window(target);
        if may_fit { Budget { tokens, ..Budget::default() } } else { budget }
    }

    /// Makes a prompt without an engine, and with room for the answer if possible.
    fn emergency_trim(
        &mut self,
        target: &Target,
        model: &ModelRef,
        budget: Budget,
        progress: PromptProgress,
    ) -> Result<Prompt, ContextError> {
        let view = self.view();
        let settings = &self.settings.invariants;
        // Without what the pinned entries are given beyond it.
        let allowed_tokens = budget.tokens;
        let mut others = [budget, budget.without_reserve()].into_iter();
        let mut budget = self.trim_budget(target, &view, budget);
        let mut plan = emergency_trim_plan(&view, budget.tokens, settings);
        while plan.is_err()
            && let Some(other) = others.next()
        {
            budget = other;
            plan = emergency_trim_plan(&view, budget.tokens, settings);
        }
        let checked = invariants::enforce(&view, plan?, budget.tokens, &self.settings.invariants)
            .map_err(|violation| EngineError::failed(violation.to_string()))
            .map_err(|error| SlotError::from_engine(EMERGENCY_TRIM, "assemble", error))?;
        let engine = self.engine.serving_info().id;
        let why = progress.trim_reason(&engine);
        let session = self.id();
        if self.is_trim_logged {
            tracing::debug!(session, why, kept_tokens = checked.tokens, "emergency trim");
        } else {
            tracing::warn!(
                session,
                engine,
                why,
                tokens = view.total_tokens(),
                kept_tokens = checked.tokens,
                budget_tokens = budget.tokens,
                reserve_tokens = budget.reserve_tokens,
                overhead_tokens = target.overhead_tokens,
                model = model.id,
                window_tokens = model.window_tokens,
                "emergency trim: neither a plan nor a compaction fits the budget; {}. Later trims of this session are logged at debug level",
                trim_advice(target, &view, allowed_tokens, model.window_tokens)
            );
        }
        // Each later request of a full session would repeat the warning.
        self.is_trim_logged = true;
        Ok(Prompt {
            budget_tokens: budget.tokens,
            view,
            checked,
            engine: EMERGENCY_TRIM.into(),
            fallback: Some(why),
            compactions: progress.compactions,
            notes: Vec::new(),
            rejected_plans: progress.rejected_plans,
            took: progress.took,
        })
    }
}

/// What helps against emergency trims, by what takes the room.
fn trim_advice(
    target: &Target,
    view: &Transcript,
    budget_tokens: u64,
    window_tokens: u64,
) -> &'static str {
    if target.overhead_tokens > window_tokens / 2 {
        "the system prompt and the tools take more than half of the window: use fewer tools, or a model with a larger window"
    } else if invariants::pinned_tokens(view) > budget_tokens {
        "the newest messages alone exceed it: send less at once, or use a model with a larger window"
    } else {
        "the engine failed (why): use another one, or a model with a larger window"
    }
}

/// The plan of the emergency trim, with a ledger of what it omits.
///
/// # Errors
///
/// [`EmergencyTrimError`] if not even the pinned entries fit.
pub fn emergency_trim_plan(
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<Plan, EmergencyTrimError> {
    invariants::emergency_trim(view, budget_tokens, settings, &|omitted, room| {
        retention::render_ledger(view, omitted, room.tokens, room.request_tokens)
    })
}

/// The estimated size of the files and images in the newest message of the user.
fn newest_files_tokens(view: &Transcript) -> u64 {
    let newest = view.iter().rev().find(Entry::is_user_message);
    newest.map_or(0, |entry| tokens::files_and_images(&Message::parse(entry.raw(), "")))
}

/// What follows an assembled plan.
enum NextStep {
    /// It is the prompt.
    Send(Box<Prompt>),
    /// Another plan may fit.
    Assemble,
    /// No plan of the engine fits.
    Trim,
}

/// The progress of preparing a prompt.
#[derive(Default)]
struct PromptProgress {
    /// The assembled plans for the present budget.
    round: u32,
    /// What an engine that owns compaction may use in the next round.
    allowance_tokens: u64,
    compactions: Vec<CompactionOutcome>,
    rejected_plans: u64,
    took: Duration,
    /// Describes by how much the last plan exceeded the budget.
    over_budget: Option<String>,
    /// How the bundled engine failed.
    engine_error: Option<String>,
}

impl PromptProgress {
    fn new(budget: Budget) -> PromptProgress {
        PromptProgress { allowance_tokens: budget.tokens, ..PromptProgress::default() }
    }

    /// Begins again with another budget.
    fn begin_rounds(&mut self, budget: Budget) {
        (self.round, self.allowance_tokens) = (0, budget.tokens);
    }

    /// Describes why only the emergency trim is left.
    fn trim_reason(&self, engine: &str) -> String {
        if let Some(error) = &self.engine_error {
            return error.clone();
        }
        let excess = self.over_budget.clone();
        let excess = excess.unwrap_or_else(|| format!("plan of {engine} is over its budget"));
        match self.compactions.last() {
            Some(CompactionOutcome {
                engine,
                verdict:
                    CompactionVerdict::Rejected { reason } | CompactionVerdict::NotTried { reason },
                ..
            }) => format!("{excess}; compact of {engine}: {reason}"),
            _ => excess,
        }
    }
}

mod assembled;

#[cfg(test)]
mod tests;
