//! What answers calls of engines: one function, whoever stands behind it.

use std::fmt::Debug;
use std::pin::Pin;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_invariants::{InvariantSettings, PinnedEntries};

use super::answer::EngineAnswer;
use super::error::SlotError;

/// An answer, or why there is none.
pub type SlotResult<T> = Result<EngineAnswer<T>, SlotError>;

/// An answer that is on its way.
pub type SlotFuture<'a> = Pin<Box<dyn Future<Output = SlotResult<EngineReply>> + Send + 'a>>;

/// Whatever answers calls as an engine does.
pub trait EngineService: Send + Sync + Debug {
    /// Answers a call.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    fn call<'a>(&'a self, context: EngineContext<'a>, call: EngineCall) -> SlotFuture<'a>;
}

/// What comes with a call beside its request.
#[derive(Clone, Copy, Debug)]
pub struct EngineContext<'a> {
    /// The session's transcript.
    pub transcript: &'a Transcript,
    /// For `assemble`, where several engines follow each other.
    pub assemble: Option<AssembleContext<'a>>,
}

impl<'a> From<&'a Transcript> for EngineContext<'a> {
    fn from(transcript: &'a Transcript) -> Self {
        EngineContext { transcript, assemble: None }
    }
}

/// What the plans of a chain are held against between its engines.
#[derive(Clone, Copy, Debug)]
pub struct AssembleContext<'a> {
    /// Where what must stay is in the session's transcript.
    pub pinned: &'a PinnedEntries,
    /// What the finished request must fit into, in tokens as entries count them.
    pub budget_tokens: u64,
    /// The numbers of the law.
    pub invariants: &'a InvariantSettings,
    /// What becomes of a chain when the law refuses the plan of one of its engines.
    pub on_refusal: OnRefusal,
}

/// What becomes of a chain when the law refuses the plan of one of its engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// As when it fails: it is in quarantine, and the others go on where that is allowed.
    Quarantine,
    /// [`SlotError::Refused`], and the engine is asked again next time.
    Report,
}
