//! What a call of the engines carries beside its request, and what it returns.

use ctxhost_engine_api::Transcript;
use ctxhost_invariants::{InvariantSettings, PinnedEntries};

use super::answer::EngineAnswer;
use super::error::SlotError;

/// An answer, or why the slot has none.
pub type SlotResult<T> = Result<EngineAnswer<T>, SlotError>;

/// The context of a call beside its request.
#[derive(Clone, Copy, Debug)]
pub struct EngineContext<'a> {
    /// The session's transcript.
    pub transcript: &'a Transcript,
    /// The checks between the engines of a chain, for `assemble`.
    pub assemble: Option<AssembleContext<'a>>,
}

impl<'a> From<&'a Transcript> for EngineContext<'a> {
    fn from(transcript: &'a Transcript) -> Self {
        EngineContext { transcript, assemble: None }
    }
}

/// The checks of each plan in a chain.
#[derive(Clone, Copy, Debug)]
pub struct AssembleContext<'a> {
    /// The pinned entries of the session's transcript.
    pub pinned: &'a PinnedEntries,
    /// The budget of the finished request, in tokens as entries count them.
    pub budget_tokens: u64,
    /// The limits of the invariants.
    pub invariants: &'a InvariantSettings,
    /// What happens when a plan of a chain violates an invariant.
    pub on_refusal: OnRefusal,
}

/// What happens when a plan of a chain violates an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// The engine is quarantined as after a failure, and the others continue if `on_engine_error`
    /// allows.
    Quarantine,
    /// [`SlotError::Refused`]; the engine is called again next time.
    Report,
}
