//! One compaction: asked for, checked against the invariants, applied only if it made progress.

use ctxhost_engine_api::{Action, CompactRequest, Compaction, ModelRef, Plan, Transcript, Trigger};
use serde_json::json;

use crate::context::Context;
use crate::error::ContextError;
use crate::hook::{self, HookDecision, PendingCompaction};
use crate::outcome::{CompactionOutcome, CompactionVerdict, FoldedEntry};
use crate::precompute::PrecomputeJob;
use crate::settings::ContextSettings;
use crate::target::{Budget, Target};
use ctxhost_engine::{EngineAnswer, SlotError};
use ctxhost_invariants::{self as invariants, EnforcedPlan, progress};
use ctxhost_retention::{self as retention, Shares};
use ctxhost_session::NewCompaction;

/// How often one prompt, or one wish of a person, may ask for a compaction (DESIGN 2, overflow recovery).
pub const MAX_COMPACTIONS: u32 = 3;

/// Characters of a folded entry's text that an outcome keeps for display.
const EXCERPT_CHARS: usize = 80;

/// Why and for what a compaction is wanted.
#[derive(Clone, Copy)]
pub(crate) struct CompactionRequest<'a> {
    pub(crate) model: &'a ModelRef,
    pub(crate) budget: Budget,
    pub(crate) trigger: Trigger,
    /// 1 for the first try at this pressure.
    pub(crate) attempt: u32,
    /// What a person asked the summary to look after.
    pub(crate) focus: Option<&'a str>,
}

impl Context {
    /// Compacts in up to three tries that grow bolder, until one is applied or no more makes sense. The last outcome
    /// says how it ended; where none was applied, the session is as it was. `focus` is what the summary should look
    /// after.
    ///
    /// # Errors
    ///
    /// [`ContextError`].
    pub async fn compact(
        &mut self,
        target: &Target,
        focus: Option<&str>,
    ) -> Result<Vec<CompactionOutcome>, ContextError> {
        let budget = self.budget(target);
        let model = self.model_ref(target);
        let mut outcomes = Vec::new();
        for attempt in 1..=MAX_COMPACTIONS {
            self.ingest().await?;
            let trigger = target.trigger;
            let request = CompactionRequest { model: &model, budget, trigger, attempt, focus };
            let outcome = self.compact_once(request).await?;
            let ended = !matches!(outcome.verdict, CompactionVerdict::Rejected { .. });
            outcomes.push(outcome);
            if ended {
                break;
            }
        }
        Ok(outcomes)
    }

    /// Tries one compaction. Whatever goes wrong, the session is as it was.
    pub(crate) async fn compact_once(
        &mut self,
        request: CompactionRequest<'_>,
    ) -> Result<CompactionOutcome, ContextError> {
        let outcome = self.try_compaction(request).await?;
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
        // A person who asks may try the same sizes again, and so do bolder attempts at one pressure.
        let is_first = attempt <= 1 && trigger != Trigger::Manual;
        let short = is_first
            .then(|| self.limits.repeated_shortfall(outcome.before_tokens, budget.tokens))
            .flatten();
        if let Some(reason) = self.limits.open_reason(now_ms).or(short) {
            outcome.verdict = CompactionVerdict::NotTried { reason: reason.to_string() };
            return Ok(outcome);
        }
        let session = self.session.session();
        let intent = session.begin_compaction(&view, &outcome.engine, trigger.name());
        let served = match self.request_compaction(&view, request).await {
            Ok(CompactionAnswer::Served { served, ahead }) => {
                outcome.is_precomputed = ahead;
                served
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
        outcome.engine.clone_from(&served.engine);
        outcome.fallback.clone_from(&served.fallback);
        outcome.took = served.elapsed;
        let checked = self.settings.check_compaction(&view, &served, budget).and_then(|lawful| {
            let (survival, passes) = self.settings.measure_retention(&view, &lawful);
            outcome.retention = Some(survival);
            passes.map(|()| lawful).map_err(Rejection::from)
        });
        match checked {
            Ok(lawful) => {
                intent.complete();
                self.apply(&lawful, &served, &mut outcome, now_ms)?;
                self.limits.record_success();
            }
            Err(Rejection { reason, freed_tokens: made_room }) => {
                outcome.verdict = CompactionVerdict::Rejected { reason };
                if made_room {
                    let (before_tokens, law) = (outcome.before_tokens, &self.settings.invariants);
                    self.limits.record_shortfall(before_tokens, budget.tokens, law);
                } else {
                    self.limits.record_failure(now_ms);
                }
            }
        }
        Ok(outcome)
    }

    /// Asks the hooks and, where none of them decides, the engine.
    async fn request_compaction(
        &mut self,
        view: &Transcript,
        request: CompactionRequest<'_>,
    ) -> Result<CompactionAnswer, SlotError> {
        let settings = self.settings.clone();
        let CompactionRequest { budget, trigger, attempt, .. } = request;
        let coming = PendingCompaction {
            session: self.session.reference(),
            view,
            trigger,
            attempt,
            before_tokens: view.total_tokens(),
            budget_tokens: budget.tokens,
        };
        for hook in &settings.hooks {
            match hook.before_compaction(&coming) {
                HookDecision::Proceed => {}
                HookDecision::Cancel { reason } => {
                    let reason = format!("a hook called it off: {reason}");
                    return Ok(CompactionAnswer::Cancelled { reason });
                }
                HookDecision::Supply { summary } => {
                    let plan = Compaction::Plan(hook::supplied_plan(summary, &coming));
                    let served = Box::new(EngineAnswer::from_host(hook::HOOK_ENGINE, plan));
                    return Ok(CompactionAnswer::Served { served, ahead: false });
                }
            }
        }
        if request.focus.is_none()
            && let Some(served) = self.precomputed.take(view, &self.engine.serving())
            && self.settings.check_compaction(view, &served, budget).is_ok()
        {
            return Ok(CompactionAnswer::Served { served: Box::new(served), ahead: true });
        }
        let call = self.compact_request(view, request);
        let served = Box::new(self.engine.compact(view, call).await?);
        Ok(CompactionAnswer::Served { served, ahead: false })
    }

    /// What an engine is asked.
    pub(crate) fn compact_request(
        &mut self,
        view: &Transcript,
        request: CompactionRequest<'_>,
    ) -> CompactRequest {
        let CompactionRequest { model, budget, trigger, attempt, focus } = request;
        let settings = &self.settings;
        self.session.update_pinned();
        CompactRequest {
            session: self.session.reference().clone(),
            budget: self.session.pinned().compaction_budget(budget.tokens, &settings.invariants),
            reserve_tokens: budget.reserve_tokens,
            current_tokens: view.total_tokens(),
            trigger,
            force: trigger == Trigger::Manual,
            custom_instructions: focus.map(str::to_owned),
            model: model.clone(),
            attempt,
            now_ms: settings.clock.now_ms(),
            ..CompactRequest::default()
        }
    }

    /// What to work out now, if anything.
    pub fn precompute_job(&mut self, target: &Target) -> Option<PrecomputeJob> {
        let share = self.settings.precompute_share;
        let now_ms = self.settings.clock.now_ms();
        if share <= 0.0 || self.limits.open_reason(now_ms).is_some() {
            return None;
        }
        let (view, budget) = (self.view(), self.budget(target));
        let is_full = view.total_tokens() as f64 > share * budget.tokens as f64;
        if !is_full || !self.precomputed.needs_job(&view) {
            return None;
        }
        let model = self.model_ref(target);
        let request = CompactionRequest {
            model: &model,
            budget,
            trigger: Trigger::Threshold,
            attempt: 1,
            focus: None,
        };
        // Every threshold lies ahead as yet.
        let request = CompactRequest { force: true, ..self.compact_request(&view, request) };
        Some(PrecomputeJob { view, engine: self.engine.clone(), budget, request })
    }

    /// Drops what was worked out where the transcript or the engine is another by now; answers of how many entries
    /// it was.
    pub fn discard_outdated_precompute(&mut self) -> Option<u64> {
        self.precomputed.discard_outdated(&self.session.view(), &self.engine.serving())
    }

    /// Keeps the answer to a job that the invariants would let through now; the id of its engine.
    ///
    /// # Errors
    ///
    /// Why it is of no use; the engine is not asked again before the transcript has grown.
    pub fn store_precomputed(
        &mut self,
        job: &PrecomputeJob,
        answer: Result<EngineAnswer<Compaction>, SlotError>,
    ) -> Result<String, String> {
        let checked = answer.map_err(|error| error.to_string()).and_then(|served| {
            let lawful = self.settings.check_compaction(&job.view, &served, job.budget);
            let lawful = lawful.map_err(|rejection| rejection.reason)?;
            self.settings.measure_retention(&job.view, &lawful).1?;
            Ok(served)
        });
        let served = checked.inspect_err(|_| self.precomputed.decline(job))?;
        let engine = served.engine.clone();
        self.precomputed.store(job, served);
        Ok(engine)
    }

    fn apply(
        &mut self,
        lawful: &EnforcedPlan,
        served: &EngineAnswer<Compaction>,
        outcome: &mut CompactionOutcome,
        now_ms: i64,
    ) -> Result<(), ContextError> {
        let view = self.view();
        self.session.compact(NewCompaction {
            plan: &lawful.plan,
            view: &view,
            tokens_before: outcome.before_tokens,
            tokens_after: lawful.tokens,
            engine: served.engine.clone(),
            engine_version: served.version.clone(),
            trigger: outcome.trigger.name().into(),
            timestamp_ms: Some(now_ms),
            extra_details: json!({ "survival": outcome.retention }),
        })?;
        // Sizes that were counted before say nothing any more.
        self.invalidate_counts();
        outcome.after_tokens = lawful.tokens;
        outcome.folded = folded_entries(&view, &lawful.plan);
        outcome.summary = inserted_text(&lawful.plan);
        if let Compaction::Plan(plan) = &served.value {
            outcome.engine_notes = engine_notes(plan);
        }
        Ok(())
    }
}

/// What came of asking.
enum CompactionAnswer {
    /// A hook or an engine answered; `is_precomputed` where the engine did before it was needed.
    Served { served: Box<EngineAnswer<Compaction>>, ahead: bool },
    /// A hook called it off.
    Cancelled { reason: String },
}

/// Why an answer is not applied.
pub(crate) struct Rejection {
    pub(crate) reason: String,
    /// Whether it freed room, although not enough.
    freed_tokens: bool,
}

impl From<String> for Rejection {
    fn from(reason: String) -> Rejection {
        Rejection { reason, freed_tokens: false }
    }
}

impl ContextSettings {
    /// Checks an answer against every invariant; the reason where it does not pass.
    pub(crate) fn check_compaction(
        &self,
        view: &Transcript,
        served: &EngineAnswer<Compaction>,
        budget: Budget,
    ) -> Result<EnforcedPlan, Rejection> {
        let plan = match &served.value {
            Compaction::Plan(plan) => plan.clone(),
            Compaction::Delegate => {
                return Err("the bundled engine delegated to itself".to_owned().into());
            }
            Compaction::Nothing { reason } => {
                return Err(format!("nothing to compact: {reason}").into());
            }
        };
        let lawful = invariants::enforce(view, plan, budget.tokens, &self.invariants)
            .map_err(|violation| violation.to_string())?;
        let before_tokens = view.total_tokens();
        progress::check_progress(before_tokens, lawful.tokens, budget.tokens, &self.invariants)
            .map_err(|stuck| Rejection {
                reason: stuck.to_string(),
                freed_tokens: stuck.has_freed_room(&self.invariants),
            })?;
        Ok(lawful)
    }

    /// Counts what a plan keeps of what was said and compares that with the gate; the reason where it does not pass.
    pub(crate) fn measure_retention(
        &self,
        view: &Transcript,
        lawful: &EnforcedPlan,
    ) -> (Shares, Result<(), String>) {
        let survival = retention::measure_retention(view, &lawful.items(view));
        let passes = self.quality_gate.check(&survival).map_err(|breach| breach.to_string());
        (survival.shares, passes)
    }
}

/// The entries of the gaps between what the plan keeps.
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
            excerpt: entry.text().chars().take(EXCERPT_CHARS).collect(),
        }));
        next = range.end;
    }
    entries
}

/// The notes of what was put in, then those of the whole plan.
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
