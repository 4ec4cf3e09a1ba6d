//! Runs one shadow engine: requests its plan and measures what it would have done.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ctxhost_engine_api::{AssembleRequest, Plan};

use super::MAX_SESSIONS;
use super::log::EngineOutcome;
use super::request::ShadowRequest;
use ctxhost_context::IngestProgress;
use ctxhost_engine::{
    ActiveEngine, AssembleContext, EngineAnswer, EngineContext, OnRefusal, SlotError,
};
use ctxhost_invariants::{self as invariants, EnforcedPlan, PinnedEntries};
use ctxhost_retention as retention;

/// A shadow engine or chain.
pub(super) struct ShadowRunner {
    name: String,
    /// The engine, or why it did not open.
    engine: Result<ActiveEngine, String>,
    sessions: HashMap<String, ShadowSession>,
}

/// What the shadow has ingested of a session.
#[derive(Default)]
struct ShadowSession {
    progress: IngestProgress,
    pinned: PinnedEntries,
    /// Whether it wanted a compaction at the previous request.
    had_wanted_compaction: bool,
}

impl ShadowRunner {
    pub(super) fn new(name: String, engine: Result<ActiveEngine, SlotError>) -> ShadowRunner {
        let engine = engine.map_err(|error| error.to_string());
        if let Err(reason) = &engine {
            tracing::warn!(engine = name, reason, "a shadow engine did not open");
        }
        ShadowRunner { name, engine, sessions: HashMap::new() }
    }

    pub(super) async fn dispose(&self) {
        if let Ok(engine) = &self.engine {
            engine.dispose().await;
        }
    }

    /// What the shadow makes of a request.
    pub(super) async fn assemble(&mut self, request: &ShadowRequest) -> EngineOutcome {
        let name = self.name.clone();
        let engine = match &self.engine {
            Ok(engine) => engine,
            Err(reason) => return EngineOutcome::failed(name, reason.clone()),
        };
        if self.sessions.len() >= MAX_SESSIONS {
            self.sessions.clear();
        }
        let session = self.sessions.entry(request.request.session.id.clone()).or_default();
        let started = Instant::now();
        let answer = match request_plan(engine, session, request).await {
            Ok(answer) => answer,
            // No quarantine: a rejected plan of a shadow affects no one.
            Err(error @ SlotError::Refused { .. }) => {
                return EngineOutcome::refused(name, error.to_string());
            }
            Err(error) => return EngineOutcome::failed(name, error.to_string()),
        };
        let took_us = microseconds(started.elapsed());
        let outcome = EngineOutcome { took_us, ..EngineOutcome::new(name) };
        evaluate_plan(answer, session, request, outcome)
    }
}

/// Ingests new entries and requests a plan.
async fn request_plan(
    engine: &ActiveEngine,
    session: &mut ShadowSession,
    request: &ShadowRequest,
) -> Result<EngineAnswer<Plan>, SlotError> {
    let (view, reference) = (&request.view, &request.request.session);
    // Branch 0: a change of the branch also changes the epoch.
    session.progress.catch_up(engine, reference, 0, view).await?;
    session.pinned.update(view);
    let assemble = AssembleContext {
        pinned: &session.pinned,
        budget_tokens: request.request.budget,
        invariants: &request.invariants,
        on_refusal: OnRefusal::Report,
    };
    let context = EngineContext { transcript: view, assemble: Some(assemble) };
    let budget = session.pinned.request_budget(request.request.budget);
    engine.ask(context, AssembleRequest { budget, ..request.request.clone() }).await
}

/// Enforces the invariants on a plan and measures the prompt it would have made.
fn evaluate_plan(
    answer: EngineAnswer<Plan>,
    session: &mut ShadowSession,
    request: &ShadowRequest,
    outcome: EngineOutcome,
) -> EngineOutcome {
    let ShadowRequest { view, invariants: settings, request: assemble, .. } = request;
    let (pinned, budget) = (&session.pinned, assemble.budget);
    let is_wanted = answer.value.extras.compaction_wanted.is_some();
    let enforced = invariants::enforce_with(pinned, view, answer.value, budget, settings);
    let checked = match enforced {
        Ok(checked) => checked,
        Err(violation) => return EngineOutcome::refused(outcome.engine, violation.to_string()),
    };
    let wants_compaction = is_wanted || checked.tokens > budget;
    // Only the first of several such requests counts: it would have compacted there.
    let had_wanted = std::mem::replace(&mut session.had_wanted_compaction, wants_compaction);
    let chain_repairs = answer.repairs.len() as u64;
    let outcome = outcome.with_plan(request, &checked, wants_compaction && !had_wanted);
    EngineOutcome { repairs: outcome.repairs + chain_repairs, ..outcome }
}

impl EngineOutcome {
    /// What the active engine made of the request.
    pub(super) fn from_active(request: &ShadowRequest, has_compacted: bool) -> EngineOutcome {
        let took_us = request.took_us;
        let outcome = EngineOutcome { took_us, ..EngineOutcome::new(request.engine.clone()) };
        let outcome = outcome.with_plan(request, &request.checked, has_compacted);
        EngineOutcome { violations: outcome.violations + request.rejected_plans, ..outcome }
    }

    fn with_plan(
        self,
        request: &ShadowRequest,
        checked: &EnforcedPlan,
        compacts: bool,
    ) -> EngineOutcome {
        let items = checked.items(&request.view);
        let retained = retention::measure_retention(&request.view, &items);
        // No budget: being over it is not a violation here, but a wish to compact.
        let violations = invariants::verify(&request.view, &items, u64::MAX);
        EngineOutcome {
            tokens: checked.tokens,
            budget_tokens: request.request.budget,
            compacts,
            retention: retained.shares,
            violations: violations.len() as u64,
            repairs: checked.repairs.len() as u64,
            ..self
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
