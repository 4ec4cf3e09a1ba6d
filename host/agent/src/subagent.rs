//! Sub-agents: a task given to a session of its own, whose last word comes back as text.
//!
//! ```text
//!  spawn ─► limits ─► engine.prepare ─► child session ─► record in the parent ─► a turn of the child
//!              │           │ error            │ error                                  │
//!              ▼           ▼                  ▼                                        ▼
//!           refused     refused     engine.rollback, refused        engine.on_subagent_ended, record
//! ```
//!
//! A child has its own lane, its own budget and its own file, which names the parent. Which children
//! live is written in the parent's session as records that are never in context, so no compaction folds
//! it and no restart forgets it; while there are any, the system prompt of the parent's requests says so,
//! which no engine can leave out.

mod registry;
mod run;
mod spawn;
mod tool;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use ctxhost_engine_api::{ContextMode, EngineError, SubagentEnd};
use tokio::sync::oneshot;

use super::inbox::InboxError;
use super::runtime::{Runtime, SessionId};
use super::turn::{TurnError, TurnReply};
use ctxhost_session::SessionError;

pub(super) use registry::SubagentTable;
pub use registry::{LiveSubagent, SubagentState};
pub(super) use run::RunningSubagents;
pub(super) use spawn::ParentSession;
pub(super) use tool::{SPAWN_AGENT, spawn_tool_spec};

/// How a sub-agent is started.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// What it sees of its parent.
    pub context: ContextMode,
    /// The file of its session, which must not be there yet; by default one in a folder beside the
    /// parent's file.
    pub path: Option<PathBuf>,
    /// The model that answers first, as `provider/id`; one of the agent's own list.
    pub model: Option<String>,
    /// The share of the budget that it may use; `None` for all of it.
    pub budget_share: Option<f64>,
}

/// Why a sub-agent was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The parent is a sub-agent that may start none.
    #[error(
        "a sub-agent of level {depth} may start no other (agent.subagent_depth); do the task itself"
    )]
    TooDeep {
        /// Its level; an agent has level 0.
        depth: u32,
    },
    /// The parent has enough of them.
    #[error(
        "{live} sub-agents are at work already (agent.subagents_live); wait for one of them to end"
    )]
    TooMany {
        /// How many.
        live: usize,
    },
    /// The model is none of the agent's.
    #[error("{name:?} is no model of this agent; name its model or one of its fallbacks")]
    UnknownModel {
        /// What was asked for.
        name: String,
    },
    /// The engine would not have it.
    #[error("the engine {engine:?} refused the sub-agent: {error}")]
    Refused {
        /// The engine.
        engine: String,
        /// What it said.
        error: Box<EngineError>,
    },
    /// The session of the child, or the record in that of the parent, could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The folder for the sessions of children could not be made.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The inbox of the child could not be opened.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The parent is not open.
    #[error(transparent)]
    Parent(#[from] TurnError),
}

/// Why a sub-agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SubagentError {
    /// Its turn failed.
    #[error("the sub-agent failed: {0}")]
    Failed(#[from] TurnError),
    /// It was ended before it had one.
    #[error("the sub-agent was {}", end_text(*.end))]
    Ended {
        /// How.
        end: SubagentEnd,
    },
}

impl SubagentError {
    /// How the child ended, as engines are told.
    fn to_subagent_end(&self) -> SubagentEnd {
        match self {
            // It will not go on with its task, and nobody waits for it any more.
            SubagentError::Failed(_) => SubagentEnd::Released,
            SubagentError::Ended { end } => *end,
        }
    }
}

fn end_text(end: SubagentEnd) -> &'static str {
    match end {
        SubagentEnd::Completed => "completed",
        SubagentEnd::Deleted => "deleted",
        SubagentEnd::Swept => "swept up after its time (agent.subagent_ttl_ms)",
        SubagentEnd::Released | SubagentEnd::Unknown => "let go",
    }
}

/// A sub-agent that is at work. Dropping this does not end it.
#[derive(Debug)]
pub struct SubagentHandle {
    session: SessionId,
    answer: oneshot::Receiver<Result<TurnReply, SubagentError>>,
}

impl SubagentHandle {
    /// Its session. It is closed when the child ends; the file stays.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Waits for its last word. The engine has been told of the end then.
    ///
    /// # Errors
    ///
    /// [`SubagentError`].
    pub async fn wait(self) -> Result<TurnReply, SubagentError> {
        let gone = SubagentError::Ended { end: SubagentEnd::Released };
        self.answer.await.unwrap_or(Err(gone))
    }
}

impl Runtime {
    /// Gives a task to a sub-agent, which works in the background while the parent goes on.
    ///
    /// Waits for the turn of the parent that is under way: inside one, the tool `spawn_agent` is the way.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]; nothing was started and the parent's session is as it was.
    pub async fn spawn_subagent(
        &self,
        parent: &SessionId,
        task: &str,
        options: SpawnOptions,
    ) -> Result<SubagentHandle, SpawnError> {
        let shared = self.state();
        let begun = {
            let mut guard = self.lock_session(parent).await?;
            ParentSession::new(&mut guard).spawn(task, &options).await?
        };
        let session = begun.session().clone();
        let (told, answer) = oneshot::channel();
        let (runtime, parent) = (self.clone(), parent.clone());
        shared.background.spawn(async move {
            let shared = runtime.state();
            let outcome = begun.run(shared).await;
            // Whoever asked may have lost interest; the child has ended all the same.
            let _ = told.send(outcome);
            if let Err(error) = shared.record_subagent_ends(&parent).await {
                tracing::warn!(session = parent.as_str(), %error, "the end of a sub-agent is not recorded");
            }
        });
        Ok(SubagentHandle { session, answer })
    }

    /// The sub-agents of a session that live: at work, or interrupted when a process ended.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn subagents(&self, parent: &SessionId) -> Result<Vec<LiveSubagent>, TurnError> {
        let shared = self.state();
        let held = shared.session(parent)?;
        let open = held.active.lock().await;
        Ok(open.subagents.live(&shared.running_subagents).cloned().collect())
    }

    /// Ends a sub-agent: `Released` lets go of it, `Deleted` says that its session goes too, which is for
    /// the caller to do. Answers whether it lived.
    ///
    /// # Errors
    ///
    /// [`TurnError`] where the end could not be recorded.
    pub async fn end_subagent(
        &self,
        parent: &SessionId,
        child: &str,
        end: SubagentEnd,
    ) -> Result<bool, TurnError> {
        let shared = self.state();
        if shared.running_subagents.stop(child, end) {
            return Ok(true);
        }
        let mut guard = self.lock_session(parent).await?;
        if !guard.active().subagents.live(&shared.running_subagents).any(|live| live.id == child) {
            return Ok(false);
        }
        ParentSession::new(&mut guard).end_subagent(child, end).await?;
        Ok(true)
    }
}
