//! Why a slot has no answer, and what the operator wants done about an engine that fails.

use ctxhost_engine_api::{EngineError, ErrorKind};
use serde::{Deserialize, Serialize};

use super::chain_spec::ChainSpecError;
use super::load::EngineOpenError;

/// What the host does when the configured engine fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEngineError {
    /// Quarantine it and let the bundled engine serve, loudly.
    #[default]
    Fallback,
    /// Fail the request.
    Fail,
}

/// Why the slot has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The configured engine could not be opened and `on_engine_error` is `fail`; or the bundled one
    /// could not.
    #[error(transparent)]
    Open(#[from] EngineOpenError),
    /// An engine failed and `on_engine_error` is `fail`; or the bundled one failed.
    #[error("engine {id:?} failed in {operation}: {error}")]
    Engine {
        /// The engine.
        id: String,
        /// The call.
        operation: &'static str,
        /// What it said.
        error: Box<EngineError>,
    },
    /// The law refused what an engine answered, and whoever asked wants to hear of it.
    #[error("the law refuses the plan of {id:?}: {reason}")]
    Refused {
        /// The engine.
        id: String,
        /// What the law said.
        reason: String,
    },
    /// Several engines were named for one slot in a way that makes no row.
    #[error("a row of engines {0}")]
    Chain(#[from] ChainSpecError),
    /// The engine said something that the caller acts on: its window is too small, what must stay
    /// does not fit, the call was cancelled.
    #[error("{error}")]
    Answer {
        /// What it said.
        error: Box<EngineError>,
    },
}

impl SlotError {
    /// An engine failed.
    pub fn from_engine(id: &str, operation: &'static str, error: EngineError) -> Self {
        SlotError::Engine { id: id.into(), operation, error: Box::new(error) }
    }

    /// An engine said something that the caller acts on.
    pub fn from_answer(error: EngineError) -> Self {
        SlotError::Answer { error: Box::new(error) }
    }

    /// What the engine said; of any other error, the error as what it said.
    pub fn into_engine_error(self) -> EngineError {
        match self {
            SlotError::Engine { error, .. } | SlotError::Answer { error } => *error,
            other => EngineError::failed(other.to_string()),
        }
    }
}

/// What the caller acts on; no engine is to blame for it.
pub(super) fn is_caller_error(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit | ErrorKind::Cancelled)
}

/// Whether a call whose error goes to the caller, a compaction or the start of a sub-agent, failed by the
/// engine's own doing. That its model answered nothing, or that it does not offer the call, is not.
pub(super) fn is_engine_fault(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Failed
            | ErrorKind::Panicked
            | ErrorKind::Deadline
            | ErrorKind::Protocol
            | ErrorKind::Dead
    )
}
