//! Opens engine chains for tests.

use ctxhost_engine_api::{AssembleRequest, ModelRef, Plan, SessionRef, Transcript};
use serde_json::json;

pub(super) use crate::testing::scripted_engine::{calls, scripted_engine};
use ctxhost_engine::{
    ActiveEngine, AssembleContext, EngineAnswer, EngineContext, EngineEnvironment, EngineSpec,
    EngineTimeouts, HostClock, OnEngineError, OnRefusal, SlotError,
};
use ctxhost_invariants::{self as invariants, EnforcedPlan, InvariantSettings, PinnedEntries};

/// Large enough for every session of these tests.
pub(super) const BUDGET: u64 = 40_000;

pub(super) fn open(engines: &[EngineSpec], on_error: OnEngineError) -> Result2<ActiveEngine> {
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    ActiveEngine::open(engines, &legacy, on_error, &environment)
}

/// A chain that skips failed engines.
pub(super) fn open_chain(engines: &[EngineSpec]) -> ActiveEngine {
    open(engines, OnEngineError::Fallback).unwrap()
}

pub(super) type Result2<T> = std::result::Result<T, SlotError>;

pub(super) fn session() -> SessionRef {
    SessionRef { id: "s".into(), key: String::new() }
}

pub(super) fn request(budget: u64) -> AssembleRequest {
    let model = ModelRef { window_tokens: 64_000, ..ModelRef::default() };
    AssembleRequest { session: session(), budget, model, ..AssembleRequest::default() }
}

/// One request through a chain, before the invariants of the whole.
pub(super) async fn staged(
    chain: &ActiveEngine,
    view: &Transcript,
    budget: u64,
) -> Result2<EngineAnswer<Plan>> {
    judged(chain, view, budget, OnRefusal::Quarantine).await
}

/// [`staged`] with an action for rejected plans.
pub(super) async fn judged(
    chain: &ActiveEngine,
    view: &Transcript,
    budget: u64,
    on_refusal: OnRefusal,
) -> Result2<EngineAnswer<Plan>> {
    let (pinned, settings) = (PinnedEntries::from_transcript(view), InvariantSettings::default());
    let assemble = AssembleContext {
        pinned: &pinned,
        budget_tokens: budget,
        invariants: &settings,
        on_refusal,
    };
    chain.ask(EngineContext { transcript: view, assemble: Some(assemble) }, request(budget)).await
}

/// One request as the runtime assembles it: the engine's answer and the checked plan.
pub(super) async fn assemble(
    chain: &ActiveEngine,
    view: &Transcript,
    budget: u64,
) -> (EngineAnswer<Plan>, EnforcedPlan) {
    loop {
        let staged = staged(chain, view, budget).await.unwrap();
        let plan = staged.value.clone();
        match invariants::enforce(view, plan, budget, &InvariantSettings::default()) {
            Ok(checked) => return (staged, checked),
            Err(violation) => {
                let why = violation.to_string();
                chain.reject(&staged, "assemble", &why).unwrap();
            }
        }
    }
}
