//! A request that was shaped and is submitted to the shadow engines.

use ctxhost_context::Prompt;
use ctxhost_engine_api::{AssembleRequest, Transcript};
use ctxhost_invariants::{EnforcedPlan, InvariantSettings};

/// A request and what the active engine made of it.
pub(super) struct ShadowRequest {
    pub(super) request: AssembleRequest,
    pub(super) view: Transcript,
    pub(super) invariants: InvariantSettings,
    /// The engine that shaped the prompt.
    pub(super) engine: String,
    pub(super) checked: EnforcedPlan,
    pub(super) took_us: u64,
    pub(super) has_compacted: bool,
    pub(super) rejected_plans: u64,
}

impl ShadowRequest {
    pub(super) fn new(
        request: AssembleRequest,
        prompt: &Prompt,
        invariants: &InvariantSettings,
    ) -> ShadowRequest {
        ShadowRequest {
            request,
            view: prompt.view.clone(),
            invariants: invariants.clone(),
            engine: prompt.engine.clone(),
            checked: prompt.checked.clone(),
            took_us: u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX),
            has_compacted: !prompt.compactions.is_empty(),
            rejected_plans: prompt.rejected_plans,
        }
    }
}
