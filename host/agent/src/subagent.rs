//! Sub-agents: tasks that run in sessions of their own and return their last message.
//!
//! ```text
//!  spawn ─► limits ─► engine.prepare ─► child session ─► record in the parent ─► a turn of the child
//!              │           │ error            │ error                                  │
//!              ▼           ▼                  ▼                                        ▼
//!           refused     refused     engine.rollback, refused        engine.on_subagent_ended, record
//! ```
//!
//! A sub-agent has its own session lock, budget and file, whose header names the parent. The parent's session records
//! its live sub-agents in entries that are never part of the context, so compactions and restarts keep them. The system
//! prompt of the parent lists them, since no engine can drop a part of that.

pub(crate) mod error;
pub(crate) mod registry;
mod run;
pub(crate) mod running;
mod spawn;
pub(crate) mod tool;

#[cfg(test)]
mod tests;

use ctxhost_engine_api::SubagentEnd;
use tokio::sync::oneshot;

use self::spawn::ParentSession;
use crate::error::TurnError;
use crate::runtime::Runtime;
use crate::session_cell::SessionId;
use crate::turn::TurnReply;

pub use self::error::{SpawnError, SpawnOptions, SubagentError};
pub use self::registry::{LiveSubagent, SubagentState};

/// A running sub-agent. Dropping the handle does not end it.
#[derive(Debug)]
pub struct SubagentHandle {
    session: SessionId,
    answer: oneshot::Receiver<Result<TurnReply, SubagentError>>,
}

impl SubagentHandle {
    /// The sub-agent's session. It is closed when the sub-agent ends; the file stays.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Waits for the sub-agent's last message. The engine was notified of the end by then.
    pub async fn wait(self) -> Result<TurnReply, SubagentError> {
        let dropped = SubagentError::Ended { end: SubagentEnd::Released };
        self.answer.await.unwrap_or(Err(dropped))
    }
}

impl Runtime {
    /// Starts a sub-agent, which works in the background. Waits for the parent's current turn; within a turn, the
    /// model uses the tool `spawn_agent`.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]; nothing was started and the parent's session is unchanged.
    pub async fn spawn_subagent(
        &self,
        parent: &SessionId,
        task: &str,
        options: SpawnOptions,
    ) -> Result<SubagentHandle, SpawnError> {
        let state = self.state();
        // The parent is unlocked before the task starts, which may take minutes.
        let run = {
            let mut guard = self.lock_session(parent).await?;
            ParentSession::new(&mut guard).spawn(task, &options).await?
        };
        let session = run.session().clone();
        let (sender, answer) = oneshot::channel();
        let (runtime, parent) = (self.clone(), parent.clone());
        state.background.spawn(async move {
            let state = runtime.state();
            let outcome = run.run(state).await;
            // Sending fails if the handle was dropped; the end is recorded all the same.
            let _ = sender.send(outcome);
            if let Err(error) = state.record_subagent_ends(&parent).await {
                tracing::warn!(session = parent.as_str(), %error, "cannot record the end of a sub-agent");
            }
        });
        Ok(SubagentHandle { session, answer })
    }

    /// The live sub-agents of a session: running, or interrupted when their process ended.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn subagents(&self, parent: &SessionId) -> Result<Vec<LiveSubagent>, TurnError> {
        let state = self.state();
        let cell = state.session(parent)?;
        let active = cell.active.lock().await;
        Ok(active.subagents.live(&state.running_subagents).cloned().collect())
    }

    /// Ends a sub-agent; returns whether it was live. With `Deleted` the caller deletes the session file itself.
    ///
    /// # Errors
    ///
    /// [`TurnError`] if the end cannot be recorded.
    pub async fn end_subagent(
        &self,
        parent: &SessionId,
        child: &str,
        end: SubagentEnd,
    ) -> Result<bool, TurnError> {
        let state = self.state();
        // A running sub-agent records its end itself.
        if state.running_subagents.stop(child, end) {
            return Ok(true);
        }
        let mut guard = self.lock_session(parent).await?;
        if !guard.active().subagents.live(&state.running_subagents).any(|live| live.id == child) {
            return Ok(false);
        }
        ParentSession::new(&mut guard).end_subagent(child, end).await?;
        Ok(true)
    }
}
