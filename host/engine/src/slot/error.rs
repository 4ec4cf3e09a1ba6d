//! Why a slot has no answer, and what the operator wants done about an engine that fails.

use ctxhost_engine_api::EngineError;
use serde::{Deserialize, Serialize};

use crate::opening::OpenError;
use crate::row::RowError;

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
    Open(#[from] OpenError),
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
    Row(#[from] RowError),
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
    pub fn engine(id: &str, operation: &'static str, error: EngineError) -> Self {
        SlotError::Engine { id: id.into(), operation, error: Box::new(error) }
    }

    /// An engine said something that the caller acts on.
    pub fn answer(error: EngineError) -> Self {
        SlotError::Answer { error: Box::new(error) }
    }
}
