//! Why a turn ended without a final answer. The session is valid in every case.

use crate::inbox::InboxError;
use ctxhost_context::ContextError;
use ctxhost_dialects::ProviderError;
use ctxhost_history::HistoryError;
use ctxhost_models::failover::FailoverError;
use ctxhost_session::SessionError;

/// Why a turn ended without a final answer.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// There is no prompt.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The session could not be written, so nothing was done.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The history has nothing of the kind.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The provider refused every request as too large, however small it was made.
    #[error(
        "the request does not fit the model after {attempts} compactions: {error}; begin a new session or name a model with a larger window"
    )]
    CompactionFailure {
        /// Recoveries that were tried.
        attempts: u32,
        /// What the provider said last.
        error: Box<ProviderError>,
    },
    /// No model of the list answered.
    #[error(transparent)]
    Models(#[from] FailoverError),
    /// The provider refused the request, and no other model would take it.
    #[error(transparent)]
    Provider(Box<ProviderError>),
    /// The model goes on calling tools.
    #[error(
        "the turn was ended after {rounds} rounds of tools (agent.max_rounds); say \"go on\" to let it continue"
    )]
    TooManyRounds {
        /// How many there were.
        rounds: u32,
    },
    /// The words could not be kept, so nothing was done.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// There is no session of this id.
    #[error("no session {id:?} is open; open or create it first")]
    NoSession {
        /// The id.
        id: String,
    },
    /// Another machine has taken the words over and answers them.
    #[error("the words were taken over by another machine; its answer stands in the session")]
    AnsweredElsewhere,
    /// The runtime was built without a store.
    #[error("this runtime has no store; build it with one, or open a session by its file")]
    NoStore,
    /// Nothing to ask.
    #[error("no model is configured; write model = \"provider/id\" under [agent] in ctxhost.toml")]
    NoModel,
    /// The engine could not be asked.
    #[error(transparent)]
    Slot(#[from] ctxhost_engine::SlotError),
}
