//! Errors of an agent turn.

use crate::inbox::InboxError;
use ctxhost_context::ContextError;
use ctxhost_dialects::ProviderError;
use ctxhost_history::HistoryError;
use ctxhost_models::failover::FailoverError;
use ctxhost_session::SessionError;

/// Why a turn ended without a final answer. The session file is valid in every case.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// No prompt could be prepared.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The session could not be read or written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session's history has no such compaction or record.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The provider refused every request as too large.
    #[error(
        "the request does not fit the model after {attempts} compactions: {error}; start a new session or configure a model with a larger window"
    )]
    CompactionFailure {
        /// Recoveries that were tried.
        attempts: u32,
        /// The last refusal.
        error: Box<ProviderError>,
    },
    /// No model of the failover chain answered.
    #[error(transparent)]
    Models(#[from] FailoverError),
    /// The provider refused the request, and failover does not apply.
    #[error(transparent)]
    Provider(Box<ProviderError>),
    /// The model kept calling tools.
    #[error(
        "the turn was stopped after {rounds} rounds of tool calls (agent.max_rounds); send \"continue\" to resume"
    )]
    TooManyRounds { rounds: u32 },
    /// The answer ended early and has no text. It is in the session.
    #[error("{model} gave no text: {why}")]
    NoText {
        /// The model, as `provider/id`.
        model: String,
        /// Why it ended, and what to do next.
        why: String,
    },
    /// The message could not be queued; nothing was sent.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// No session with this id is open.
    #[error("no session {id:?} is open; open or create it first")]
    NoSession { id: String },
    /// Another machine took the queued message over.
    #[error("another machine took over the message; its answer is in the session")]
    AnsweredElsewhere,
    /// No model is configured.
    #[error("no model is configured; write model = \"provider/id\" under [agent] in ctxhost.toml")]
    NoModel,
    /// An engine call failed.
    #[error(transparent)]
    Slot(#[from] ctxhost_engine::SlotError),
}
