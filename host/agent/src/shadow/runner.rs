//! One engine in the shadow: what it would make of a request.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ctxhost_engine_api::{AssembleRequest, Plan};

use super::ShadowRequest;
use super::log::EngineOutcome;
use ctxhost_context::IngestProgress;
use ctxhost_engine::{
    ActiveEngine, AssembleContext, EngineAnswer, EngineContext, OnRefusal, SlotError,
};
use ctxhost_invariants::{self as invariants, EnforcedPlan, PinnedEntries};
use ctxhost_retention as retention;

/// Sessions that are remembered. One that is forgotten begins anew.
const MAX_SESSIONS: usize = 256;

/// A row of engines in the shadow.
pub(super) struct ShadowRunner {
    name: String,
    /// Why not, where it did not open.
    active: Result<ActiveEngine, String>,
    sessions: HashMap<String, ShadowSession>,
}

/// What it has been told of one session.
#[derive(Default)]
struct ShadowSession {
    progress: IngestProgress,
    pinned: PinnedEntries,
    /// Whether it would have compacted at the request before.
    had_wanted_compaction: bool,
}

impl ShadowRunner {
    pub(super) fn new(name: String, active: Result<ActiveEngine, SlotError>) -> ShadowRunner {
        let active = active.map_err(|error| error.to_string());
        if let Err(reason) = &active {
            tracing::warn!(engine = name, reason, "an engine in the shadow did not open");
        }
        ShadowRunner { name, active, sessions: HashMap::new() }
    }

    /// Lets its engines go.
    pub(super) async fn dispose(&self) {
        if let Ok(active) = &self.active {
            active.dispose().await;
        }
    }

    /// What it would make of a request.
    pub(super) async fn assemble(&mut self, shown: &ShadowRequest) -> EngineOutcome {
        let name = self.name.clone();
        let active = match &self.active {
            Ok(active) => active,
            Err(reason) => return EngineOutcome::failed(name, reason.clone()),
        };
        if self.sessions.len() >= MAX_SESSIONS {
            self.sessions.clear();
        }
        let known = self.sessions.entry(shown.request.session.id.clone()).or_default();
        let began = Instant::now();
        let served = match request_plan(active, known, shown).await {
            Ok(served) => served,
            // It is told of and asked again: nobody was hurt.
            Err(error @ SlotError::Refused { .. }) => {
                return EngineOutcome::refused(name, error.to_string());
            }
            Err(error) => return EngineOutcome::failed(name, error.to_string()),
        };
        let seen =
            EngineOutcome { took_us: microseconds(began.elapsed()), ..EngineOutcome::new(name) };
        evaluate_plan(served, known, shown, seen)
    }
}

/// Tells it what is new and asks for its plan.
async fn request_plan(
    active: &ActiveEngine,
    known: &mut ShadowSession,
    shown: &ShadowRequest,
) -> Result<EngineAnswer<Plan>, SlotError> {
    let (view, session) = (&shown.view, &shown.request.session);
    known.progress.catch_up(active, session, 0, view).await?;
    known.pinned.update(view);
    let assemble = AssembleContext {
        pinned: &known.pinned,
        budget_tokens: shown.request.budget,
        invariants: &shown.invariants,
        on_refusal: OnRefusal::Report,
    };
    let context = EngineContext { transcript: view, assemble: Some(assemble) };
    let budget = known.pinned.request_budget(shown.request.budget);
    active.ask(context, AssembleRequest { budget, ..shown.request.clone() }).await
}

/// Holds its plan against the law and counts what would have come of it.
fn evaluate_plan(
    served: EngineAnswer<Plan>,
    known: &mut ShadowSession,
    shown: &ShadowRequest,
    seen: EngineOutcome,
) -> EngineOutcome {
    let ShadowRequest { view, invariants: law, request, .. } = shown;
    let is_wanted = served.value.extras.compaction_wanted.is_some();
    let lawful = invariants::enforce_with(&known.pinned, view, served.value, request.budget, law);
    let lawful = match lawful {
        Ok(lawful) => lawful,
        Err(violation) => return EngineOutcome::refused(seen.engine, violation.to_string()),
    };
    let compacts = is_wanted || lawful.tokens > request.budget;
    // It would have compacted once, and not again at every request until somebody else does.
    let did_before = std::mem::replace(&mut known.had_wanted_compaction, compacts);
    let begins_to = compacts && !did_before;
    let mended = served.repairs.len() as u64;
    let seen = seen.with_plan(shown, &lawful, begins_to);
    EngineOutcome { repairs: seen.repairs + mended, ..seen }
}

impl EngineOutcome {
    /// What the engine of the slot made of it.
    pub(super) fn from_active(shown: &ShadowRequest, has_compacted: bool) -> EngineOutcome {
        let seen =
            EngineOutcome { took_us: shown.took_us, ..EngineOutcome::new(shown.engine.clone()) };
        let seen = seen.with_plan(shown, &shown.checked, has_compacted);
        EngineOutcome { illegal: seen.illegal + shown.rejected_plans, ..seen }
    }

    fn with_plan(
        self,
        shown: &ShadowRequest,
        lawful: &EnforcedPlan,
        compacts: bool,
    ) -> EngineOutcome {
        let items = lawful.items(&shown.view);
        let breaches = invariants::verify(&shown.view, &items, u64::MAX);
        EngineOutcome {
            tokens: lawful.tokens,
            budget_tokens: shown.request.budget,
            compacts,
            survival: retention::measure_retention(&shown.view, &items).shares,
            illegal: breaches.len() as u64,
            repairs: lawful.repairs.len() as u64,
            ..self
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
