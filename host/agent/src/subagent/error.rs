//! Options and errors of sub-agents.

use std::path::PathBuf;

use ctxhost_engine_api::{ContextMode, EngineError, SubagentEnd};

use crate::error::TurnError;
use crate::inbox::InboxError;
use ctxhost_session::SessionError;

/// How a sub-agent is started.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// What it sees of its parent's conversation.
    pub context: ContextMode,
    /// The new file of its session; by default one in a folder beside the parent's file.
    pub path: Option<PathBuf>,
    /// Its first model, as `provider/id`; one of the agent's failover chain.
    pub model: Option<String>,
    /// Its share of the budget; `None` for all of it.
    pub budget_share: Option<f64>,
}

/// Why a sub-agent was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The parent is at the maximum depth.
    #[error(
        "a sub-agent of depth {depth} may not start another one (agent.subagent_depth); do the task yourself"
    )]
    TooDeep {
        /// The parent's depth; an agent has depth 0.
        depth: u32,
    },
    /// The parent has the maximum number of live sub-agents.
    #[error(
        "{live} sub-agents are running (limit: agent.subagents_live); wait for one of them to end"
    )]
    TooMany { live: usize },
    /// The model is not in the agent's failover chain.
    #[error("{name:?} is not a model of this agent; use agent.model or one of agent.fallbacks")]
    UnknownModel { name: String },
    /// The engine refused the spawn.
    #[error("the engine {engine:?} refused the sub-agent: {error}")]
    Refused { engine: String, error: Box<EngineError> },
    /// The sub-agent's session, or its record in the parent's, could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The folder for sub-agents' sessions could not be created.
    #[error("cannot create the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    /// The sub-agent's inbox could not be opened.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The parent's session could not be locked.
    #[error(transparent)]
    Parent(#[from] TurnError),
}

/// Why a sub-agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SubagentError {
    /// Its turn failed.
    #[error("the sub-agent failed: {0}")]
    Failed(#[from] TurnError),
    /// It was ended before it answered.
    #[error("the sub-agent was {}", end_text(*.end))]
    Ended { end: SubagentEnd },
}

impl SubagentError {
    /// The end that the engine is notified of.
    pub(super) fn to_subagent_end(&self) -> SubagentEnd {
        match self {
            // A failed turn is not resumed, and its caller has the error.
            SubagentError::Failed(_) => SubagentEnd::Released,
            SubagentError::Ended { end } => *end,
        }
    }
}

fn end_text(end: SubagentEnd) -> &'static str {
    match end {
        SubagentEnd::Completed => "completed",
        SubagentEnd::Deleted => "deleted",
        SubagentEnd::Swept => "ended at its time limit (agent.subagent_ttl_ms)",
        SubagentEnd::Released | SubagentEnd::Unknown => "released",
    }
}
