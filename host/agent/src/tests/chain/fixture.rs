//! A stack of engines in front of a session.

use ctxhost_engine_api::{AssembleRequest, ModelRef, Plan, SessionRef, Transcript};
use serde_json::json;

pub(super) use crate::testing::puppet::{heard, puppet};
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

/// A stack that may do without a stage that fails.
pub(super) fn stack(engines: &[EngineSpec]) -> ActiveEngine {
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

/// One request through a stack, without the law behind the last stage.
pub(super) async fn staged(
    stack: &ActiveEngine,
    view: &Transcript,
    budget: u64,
) -> Result2<EngineAnswer<Plan>> {
    judged(stack, view, budget, OnRefusal::Quarantine).await
}

/// The same, where the law's refusals do as they are told.
pub(super) async fn judged(
    stack: &ActiveEngine,
    view: &Transcript,
    budget: u64,
    on_refusal: OnRefusal,
) -> Result2<EngineAnswer<Plan>> {
    let (anchors, law) = (PinnedEntries::from_transcript(view), InvariantSettings::default());
    let assemble =
        AssembleContext { pinned: &anchors, budget_tokens: budget, invariants: &law, on_refusal };
    stack.ask(EngineContext { transcript: view, assemble: Some(assemble) }, request(budget)).await
}

/// One request as the runtime shapes it: who shaped it, and the lawful plan.
pub(super) async fn shaped(
    stack: &ActiveEngine,
    view: &Transcript,
    budget: u64,
) -> (EngineAnswer<Plan>, EnforcedPlan) {
    loop {
        let staged = staged(stack, view, budget).await.unwrap();
        let plan = staged.value.clone();
        match invariants::enforce(view, plan, budget, &InvariantSettings::default()) {
            Ok(lawful) => return (staged, lawful),
            Err(violation) => {
                let why = violation.to_string();
                stack.reject(&staged, "assemble", &why).unwrap();
            }
        }
    }
}
