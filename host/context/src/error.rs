//! Why a context has no prompt, or was not compacted.

use ctxhost_engine::SlotError;
use ctxhost_invariants::EmergencyTrimError;
use ctxhost_session::SessionError;

/// Why a context has no prompt, or was not compacted.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No engine answered.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// Not even the emergency trim fits.
    #[error(transparent)]
    CannotFit(#[from] EmergencyTrimError),
    /// The session could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The request does not fit and compactions are left to the person.
    #[error(
        "the next request needs {tokens} tokens and {budget_tokens} are free; compact the session (/compact, or `ctxhost compact`)"
    )]
    CompactionRequired {
        /// What it needs, as entries count.
        tokens: u64,
        /// What it may take.
        budget_tokens: u64,
    },
}
