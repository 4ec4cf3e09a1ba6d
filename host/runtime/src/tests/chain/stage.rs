//! A stack of engines in front of a session.

use ctxhost_engine_api::{AssembleRequest, ModelRef, Plan, SessionRef, Transcript};
use serde_json::json;

pub(super) use crate::testing::puppet::{heard, puppet};
use ctxhost_engine::{
    ActiveEngine, AssembleContext, Clock, EngineContext, EngineSpec, Environment, OnEngineError,
    OnRefusal, Served, SlotError, Timeouts,
};
use ctxhost_law::{self as law, Anchors, LawSettings, Lawful};

/// Large enough for every session of these tests.
pub(super) const BUDGET: u64 = 40_000;

pub(super) fn open(engines: &[EngineSpec], on_error: OnEngineError) -> Result2<ActiveEngine> {
    let environment = Environment::new(Timeouts::default(), Clock::default());
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
) -> Result2<Served<Plan>> {
    judged(stack, view, budget, OnRefusal::LeaveOut).await
}

/// The same, where the law's refusals do as they are told.
pub(super) async fn judged(
    stack: &ActiveEngine,
    view: &Transcript,
    budget: u64,
    on_refusal: OnRefusal,
) -> Result2<Served<Plan>> {
    let (anchors, law) = (Anchors::of(view), LawSettings::default());
    let assemble =
        AssembleContext { anchors: &anchors, budget_tokens: budget, law: &law, on_refusal };
    stack.ask(EngineContext { transcript: view, assemble: Some(assemble) }, request(budget)).await
}

/// One request as the runtime shapes it: who shaped it, and the lawful plan.
pub(super) async fn shaped(
    stack: &ActiveEngine,
    view: &Transcript,
    budget: u64,
) -> (Served<Plan>, Lawful) {
    loop {
        let staged = staged(stack, view, budget).await.unwrap();
        let plan = staged.value.clone();
        match law::enforce(view, plan, budget, &LawSettings::default()) {
            Ok(lawful) => return (staged, lawful),
            Err(violation) => {
                let why = violation.to_string();
                stack.refuse(&staged, "assemble", &why).unwrap();
            }
        }
    }
}
