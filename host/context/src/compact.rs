//! Compactions: requested from hooks or the engine, checked against the invariants, applied if they make progress.

use ctxhost_engine_api::{Action, CompactRequest, Compaction, ModelRef, Plan, Transcript, Trigger};
use serde_json::json;

use crate::context::Context;
use crate::error::ContextError;
use crate::hook::{self, HookDecision, PendingCompaction};
use crate::ignored_compactions::WINDOW_KEY;
use crate::outcome::{CompactionOutcome, CompactionVerdict, FoldedEntry};
use crate::precompute::PrecomputeJob;
use crate::settings::ContextSettings;
use crate::target::{Budget, Target};
use ctxhost_engine::{EngineAnswer, SlotError};
use ctxhost_invariants::{self as invariants, EnforcedPlan, progress};
use ctxhost_retention::{self as retention, KnownSecrets, Shares};
use ctxhost_session::NewCompaction;

/// Compaction attempts per prompt or per manual request. Later attempts ask the engine for more, and after three the
/// emergency trim is more useful than another summary.
pub const MAX_COMPACTIONS: u32 = 3;

/// Characters of a folded entry's text in an outcome.
const EXCERPT_CHARS: usize = 80;

/// The parameters of one compaction attempt.
#[derive(Clone, Copy)]
pub(crate) struct CompactionRequest<'a> {
    pub(crate) model: &'a ModelRef,
    pub(crate) budget: Budget,
    /// [`Context::recorded_window`].
    pub(crate) window_tokens: Option<u64>,
    pub(crate) trigger: Trigger,
    /// From 1, counted per prompt or manual request.
    pub(crate) attempt: u32,
    /// What the user wants the summary to preserve.
    pub(crate) focus: Option<&'a str>,
}

impl Context {
    /// Compacts in up to three attempts, until one is applied or a retry makes no sense. The last outcome is the result;
    /// if none was applied, the session is unchanged. `focus` is what the summary preserves.
    pub async fn compact(
        &mut self,
        target: &Target,
        focus: Option<&str>,
    ) -> Result<Vec<CompactionOutcome>, ContextError> {
        let budget = self.budget(target);
        let model = self.model_ref(target);
        let mut outcomes = Vec::new();
        self.limits.begin_request();
        for attempt in 1..=MAX_COMPACTIONS {
            self.ingest().await?;
            let request = CompactionRequest {
                model: &model,
                budget,
                window_tokens: self.recorded_window(target),
                trigger: target.trigger,
                attempt,
                focus,
            };
            let outcome = self.compact_once(request).await?;
            let is_final = !matches!(outcome.verdict, CompactionVerdict::Rejected { .. });
            outcomes.push(outcome);
            // Only a rejected compaction is worth a bolder attempt.
            if is_final {
                break;
            }
        }
        Ok(outcomes)
    }

    /// Attempts one compaction. On failure the session is unchanged.
    pub(crate) async fn compact_once(
        &mut self,
        request: CompactionRequest<'_>,
    ) -> Result<CompactionOutcome, ContextError> {
        let outcome = self.try_compaction(request).await?;
        // Also for rejected compactions: a hook may count them.
        self.settings.hooks.iter().for_each(|hook| hook.after_compaction(&outcome));
        Ok(outcome)
    }

    async fn try_compaction(
        &mut self,
        request: CompactionRequest<'_>,
    ) -> Result<CompactionOutcome, ContextError> {
        let CompactionRequest { budget, trigger, attempt, .. } = request;
        let (view, now_ms) = (self.view(), self.settings.clock.now_ms());
        let engine = self.engine.serving_info().id;
        let mut outcome = CompactionOutcome::new(engine, &view, trigger);
        // A shortfall at the same size is not repeated, except manually or by a bolder attempt.
        let is_first = attempt <= 1 && trigger != Trigger::Manual;
        let shortfall = is_first
            .then(|| self.limits.repeated_shortfall(outcome.before_tokens, budget.tokens))
            .flatten();
        if let Some(reason) = self.limits.attempt_open_reason(now_ms).or(shortfall) {
            outcome.verdict = CompactionVerdict::NotTried { reason: reason.to_string() };
            return Ok(outcome);
        }
        let session = self.session.session();
        // Recorded before the engine is called: a kill during a long summary can be recovered.
        let intent = session.begin_compaction(&view, &outcome.engine, trigger.name());
        let answer = match self.request_compaction(&view, request).await {
            Ok(CompactionAnswer::Served { answer, is_precomputed }) => {
                outcome.is_precomputed = is_precomputed;
                answer
            }
            Ok(CompactionAnswer::Cancelled { reason }) => {
                outcome.verdict = CompactionVerdict::NotTried { reason };
                return Ok(outcome);
            }
            Err(SlotError::Engine { id, error, .. }) => {
                outcome.engine = id;
                outcome.verdict = CompactionVerdict::Rejected { reason: error.message };
                self.limits.record_failure(now_ms);
                return Ok(outcome);
            }
            Err(other) => return Err(other.into()),
        };
        // Not the engine that was asked: a fallback may have answered.
        outcome.engine.clone_from(&answer.engine);
        outcome.fallback.clone_from(&answer.fallback);
        outcome.took = answer.elapsed;
        let checked = self.settings.check_compaction(&view, &answer, budget).and_then(|checked| {
            let (retention, passes) = self.settings.measure_retention(&view, &checked);
            outcome.retention = Some(retention);
            passes.map(|()| checked).map_err(Rejection::from)
        });
        match checked {
            Ok(checked) => {
                // Completed before it is applied: a kill in between is recovered from the intent.
                intent.complete();
                self.apply(&checked, &answer, &mut outcome, (now_ms, request.window_tokens))?;
                self.limits.record_success();
                self.settings.warn_below_floor(&outcome, budget.tokens);
            }
            Err(Rejection { reason, freed_tokens }) => {
                outcome.verdict = CompactionVerdict::Rejected { reason };
                // A compaction that freed too little does not open the breaker: it is only not
                // repeated at the same size.
                if freed_tokens {
                    let (before_tokens, settings) =
                        (outcome.before_tokens, &self.settings.invariants);
                    self.limits.record_shortfall(before_tokens, budget.tokens, settings);
                } else {
                    self.limits.record_failure(now_ms);
                }
            }
        }
        Ok(outcome)
    }

    /// Calls the hooks and, if all of them proceed, the engine.
    async fn request_compaction(
        &mut self,
        view: &Transcript,
        request: CompactionRequest<'_>,
    ) -> Result<CompactionAnswer, SlotError> {
        let settings = self.settings.clone();
        let CompactionRequest { budget, trigger, attempt, .. } = request;
        let pending = PendingCompaction {
            session: self.session.reference(),
            view,
            trigger,
            attempt,
            before_tokens: view.total_tokens(),
            budget_tokens: budget.tokens,
        };
        for hook in &settings.hooks {
            match hook.before_compaction(&pending) {
                HookDecision::Proceed => {}
                HookDecision::Cancel { reason } => {
                    let reason = format!("cancelled by a hook: {reason}");
                    return Ok(CompactionAnswer::Cancelled { reason });
                }
                HookDecision::Supply { summary } => {
                    let plan = Compaction::Plan(hook::supplied_plan(summary, &pending));
                    let answer = Box::new(EngineAnswer::from_host(hook::HOOK_ENGINE, plan));
                    return Ok(CompactionAnswer::Served { answer, is_precomputed: false });
                }
            }
        }
        // With a focus the summary must be written anew.
        if request.focus.is_none()
            && let Some(answer) = self.precomputed.take(view, &self.engine.serving())
            && self.settings.check_compaction(view, &answer, budget).is_ok()
        {
            let answer = Box::new(answer);
            return Ok(CompactionAnswer::Served { answer, is_precomputed: true });
        }
        let call = self.compact_request(view, request);
        let answer = Box::new(self.engine.compact(view, call).await?);
        Ok(CompactionAnswer::Served { answer, is_precomputed: false })
    }

    /// The request to the engine.
    pub(crate) fn compact_request(
        &mut self,
        view: &Transcript,
        request: CompactionRequest<'_>,
    ) -> CompactRequest {
        let CompactionRequest { model, budget, trigger, attempt, focus, .. } = request;
        let settings = &self.settings;
        self.session.update_pinned();
        CompactRequest {
            session: self.session.reference().clone(),
            budget: self.session.pinned().compaction_budget(budget.tokens, &settings.invariants),
            reserve_tokens: budget.reserve_tokens,
            current_tokens: view.total_tokens(),
            trigger,
            // Below its own threshold an engine would do nothing.
            force: trigger == Trigger::Manual,
            custom_instructions: focus.map(str::to_owned),
            model: model.clone(),
            attempt,
            now_ms: settings.clock.now_ms(),
            ..CompactRequest::default()
        }
    }

    /// The compaction to precompute now, if any.
    pub fn precompute_job(&mut self, target: &Target) -> Option<PrecomputeJob> {
        let share = self.settings.precompute_share;
        let now_ms = self.settings.clock.now_ms();
        // An open breaker would reject the result as well.
        if share <= 0.0 || self.limits.open_reason(now_ms).is_some() {
            return None;
        }
        let (view, budget) = (self.view(), self.budget(target));
        // Too early it would be outdated before it is needed.
        let is_full = view.total_tokens() as f64 > share * budget.tokens as f64;
        if !is_full || !self.precomputed.needs_job(&view) {
            return None;
        }
        let model = self.model_ref(target);
        let request = CompactionRequest {
            model: &model,
            budget,
            window_tokens: self.recorded_window(target),
            trigger: Trigger::Threshold,
            attempt: 1,
            focus: None,
        };
        // Forced: the engine's own threshold is not reached yet.
        let request = CompactRequest { force: true, ..self.compact_request(&view, request) };
        Some(PrecomputeJob { view, engine: self.engine.clone(), budget, request })
    }

    /// Discards a precomputed compaction if the transcript or the engine has changed; returns the number of entries
    /// that it covered.
    pub fn discard_outdated_precompute(&mut self) -> Option<u64> {
        self.precomputed.discard_outdated(&self.session.view(), &self.engine.serving())
    }

    /// Stores the answer to a job if it passes the checks; returns the engine's id.
    ///
    /// # Errors
    ///
    /// Why it does not pass. The next job waits until the transcript has grown.
    pub fn store_precomputed(
        &mut self,
        job: &PrecomputeJob,
        answer: Result<EngineAnswer<Compaction>, SlotError>,
    ) -> Result<String, String> {
        let checked = answer.map_err(|error| error.to_string()).and_then(|answer| {
            let checked = self.settings.check_compaction(&job.view, &answer, job.budget);
            let checked = checked.map_err(|rejection| rejection.reason)?;
            self.settings.measure_retention(&job.view, &checked).1?;
            Ok(answer)
        });
        let answer = checked.inspect_err(|_| self.precomputed.decline(job))?;
        let engine = answer.engine.clone();
        self.precomputed.store(job, answer);
        Ok(engine)
    }

    pub(crate) fn apply(
        &mut self,
        checked: &EnforcedPlan,
        answer: &EngineAnswer<Compaction>,
        outcome: &mut CompactionOutcome,
        (now_ms, window_tokens): (i64, Option<u64>),
    ) -> Result<(), ContextError> {
        let view = self.view();
        // The key of the session format: another one would change the ids of compactions, which are hashes of their
        // records.
        let survival = &outcome.retention;
        let host_details = match window_tokens {
            Some(window_tokens) => json!({ "survival": survival, (WINDOW_KEY): window_tokens }),
            None => json!({ "survival": survival }),
        };
        let ignored = self.session.ignored_compactions().to_vec();
        self.session.compact(NewCompaction {
            plan: &checked.plan,
            view: &view,
            ignored: &ignored,
            tokens_before: outcome.before_tokens,
            tokens_after: checked.tokens,
            engine: answer.engine.clone(),
            engine_version: answer.version.clone(),
            trigger: outcome.trigger.name().into(),
            timestamp_ms: Some(now_ms),
            extra_details: host_details,
        })?;
        self.invalidate_counts();
        outcome.after_tokens = checked.tokens;
        outcome.folded = folded_entries(&view, &checked.plan);
        outcome.summary = inserted_text(&checked.plan);
        if let Compaction::Plan(plan) = &answer.value {
            outcome.engine_notes = engine_notes(plan);
        }
        Ok(())
    }
}

/// The answer to a compaction request.
enum CompactionAnswer {
    /// A compaction of a hook or an engine.
    Served { answer: Box<EngineAnswer<Compaction>>, is_precomputed: bool },
    /// A hook cancelled the compaction.
    Cancelled { reason: String },
}

/// Why a compaction is not applied.
pub(crate) struct Rejection {
    pub(crate) reason: String,
    /// Whether it freed tokens, although not enough.
    freed_tokens: bool,
}

impl From<String> for Rejection {
    fn from(reason: String) -> Rejection {
        Rejection { reason, freed_tokens: false }
    }
}

impl ContextSettings {
    /// Checks a compaction against every invariant.
    pub(crate) fn check_compaction(
        &self,
        view: &Transcript,
        answer: &EngineAnswer<Compaction>,
        budget: Budget,
    ) -> Result<EnforcedPlan, Rejection> {
        let mut plan = match &answer.value {
            Compaction::Plan(plan) => plan.clone(),
            Compaction::Delegate => {
                return Err("the bundled engine delegated to itself".to_owned().into());
            }
            Compaction::Nothing { reason } => {
                return Err(format!("nothing to compact: {reason}").into());
            }
        };
        // It is for the system prompt of a request.
        plan.extras.system_prompt_addition = None;
        let checked = invariants::enforce(view, plan, budget.tokens, &self.invariants)
            .map_err(|violation| violation.to_string())?;
        let before_tokens = view.total_tokens();
        progress::check_progress(before_tokens, checked.tokens, budget.tokens, &self.invariants)
            .map_err(|stuck| Rejection {
                reason: stuck.to_string(),
                freed_tokens: stuck.has_freed_room(&self.invariants),
            })?;
        Ok(checked)
    }

    /// Warns of a compaction that left room unused. It is applied all the same: the next one may do better, and without
    /// it the request may not fit.
    fn warn_below_floor(&self, outcome: &CompactionOutcome, budget_tokens: u64) {
        let CompactionOutcome { engine, before_tokens, after_tokens, .. } = outcome;
        // What a user asks for may be as small as the engine makes it.
        let floor_tokens = self.invariants.floor_tokens(budget_tokens).min(*before_tokens);
        if outcome.trigger != Trigger::Manual && *after_tokens < floor_tokens {
            tracing::warn!(
                %engine,
                after_tokens,
                floor_tokens,
                "a compaction kept less than the floor although more would fit (invariants.room_floor_share)"
            );
        }
    }

    /// Measures what a plan retains and checks that against the quality gate; the reason if it fails.
    pub(crate) fn measure_retention(
        &self,
        view: &Transcript,
        checked: &EnforcedPlan,
    ) -> (Shares, Result<(), String>) {
        let measured = retention::measure_retention(view, &checked.items(view));
        let passes = self.quality_gate.check(&measured).map_err(|breach| breach.to_string());
        (measured.shares, passes)
    }
}

/// The entries that the plan does not keep.
fn folded_entries(view: &Transcript, plan: &Plan) -> Vec<FoldedEntry> {
    let mut entries = Vec::new();
    let mut next = 0;
    let kept = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. } => {
            Some(op.action.range())
        }
        _ => None,
    });
    let end = view.len() as u64;
    for range in kept.chain(std::iter::once(end..end)) {
        entries.extend(view.range(next..range.start).map(|entry| FoldedEntry {
            id: entry.id().into(),
            role: entry.role(),
            tokens: entry.tokens(),
            excerpt: KnownSecrets::default().excerpt(entry.text(), EXCERPT_CHARS),
        }));
        next = range.end;
    }
    entries
}

/// The notes of inserted texts, then those of the whole plan.
fn engine_notes(plan: &Plan) -> String {
    let inserted = plan.ops.iter().filter(|op| matches!(op.action, Action::Insert { .. }));
    let notes = inserted.filter_map(|op| op.note.as_ref()).chain(&plan.extras.notes);
    notes.map(|note| note.detail.as_str()).collect::<Vec<_>>().join("; ")
}

fn inserted_text(plan: &Plan) -> String {
    let texts = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Insert { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
