//! Errors of a context.

use ctxhost_engine::SlotError;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_invariants::EmergencyTrimError;
use ctxhost_session::SessionError;

/// Why a context could not prepare a prompt or compact.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// An engine call failed.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// Not even the emergency trim fits.
    #[error(transparent)]
    CannotFit(#[from] EmergencyTrimError),
    /// The session could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The request does not fit, and compactions are manual.
    #[error(
        "the next request needs {} tokens, more than its budget of {}; compact the session (`/compact` or `ctxhost compact`)", group_thousands(*tokens), group_thousands(*budget_tokens)
    )]
    CompactionRequired {
        /// Its size, in estimated tokens.
        tokens: u64,
        budget_tokens: u64,
    },
}
