//! What answers calls of engines: one function, whoever stands behind it.

use std::fmt::Debug;
use std::pin::Pin;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_law::{Anchors, LawSettings};

use super::error::SlotError;
use super::served::Served;

/// An answer, or why there is none.
pub type Answer<T> = Result<Served<T>, SlotError>;

/// An answer that is on its way.
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Answer<EngineReply>> + Send + 'a>>;

/// Whatever answers calls as an engine does.
pub trait EngineService: Send + Sync + Debug {
    /// Answers a call.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    fn call<'a>(&'a self, context: EngineContext<'a>, call: EngineCall) -> AnswerFuture<'a>;
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
    pub anchors: &'a Anchors,
    /// What the finished request must fit into, in tokens as entries count them.
    pub budget_tokens: u64,
    /// The numbers of the law.
    pub law: &'a LawSettings,
    /// What becomes of a chain when the law refuses the plan of one of its engines.
    pub on_refusal: OnRefusal,
}

/// What becomes of a chain when the law refuses the plan of one of its engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// As when it fails: it is in quarantine, and the others go on where that is allowed.
    LeaveOut,
    /// [`SlotError::Refused`], and the engine is asked again next time.
    Report,
}
