//! Runs a spawned sub-agent until it answers, is stopped, or reaches its time limit.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{SessionRef, SubagentEnd, SubagentEndedRequest};
use tokio::sync::oneshot;

use super::error::SubagentError;
use super::running::RunGuard;
use crate::event::EventKind;
use crate::session_cell::SessionId;
use crate::state::RuntimeState;
use crate::turn::TurnReply;
use ctxhost_dialects::ChatBlock;
use ctxhost_engine::ActiveEngine;

/// A spawned sub-agent that has not started its task.
#[derive(Debug)]
pub(crate) struct SubagentRun {
    parent: String,
    child: SessionId,
    task: String,
    /// The engine that prepared the spawn; it is notified of the end, whichever engine is current then.
    engine: Arc<ActiveEngine>,
    guard: RunGuard,
    stopped: oneshot::Receiver<SubagentEnd>,
}

impl SubagentRun {
    pub(super) fn new(
        state: &RuntimeState,
        engine: &Arc<ActiveEngine>,
        parent: String,
        child: SessionId,
        task: &str,
    ) -> SubagentRun {
        let (guard, stopped) = state.running_subagents.start(child.as_str());
        let (task, engine) = (task.to_owned(), engine.clone());
        SubagentRun { parent, child, task, engine, guard, stopped }
    }

    /// The sub-agent's session.
    pub(super) fn session(&self) -> &SessionId {
        &self.child
    }

    /// Runs the task, notifies the engine of the end and closes the sub-agent's session.
    pub(super) async fn run(
        mut self,
        state: &Arc<RuntimeState>,
    ) -> Result<TurnReply, SubagentError> {
        let outcome = self.run_task(state).await;
        let end = match &outcome {
            Ok(_) => SubagentEnd::Completed,
            Err(error) => error.to_subagent_end(),
        };
        state.notify_subagent_ended(&self.engine, self.child.as_str(), end).await;
        state.close(self.child.as_str());
        self.guard.end(end);
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let child = self.child.to_string();
        state.emit(&self.parent, EventKind::SubagentEnded { child, end, failure });
        outcome
    }

    async fn run_task(&mut self, state: &Arc<RuntimeState>) -> Result<TurnReply, SubagentError> {
        let ttl = Duration::from_millis(state.settings.subagent_ttl_ms);
        let task = vec![ChatBlock::text(&self.task)];
        tokio::select! {
            // A stop by the user wins over an answer at the same moment.
            biased;
            end = &mut self.stopped => {
                Err(SubagentError::Ended { end: end.unwrap_or(SubagentEnd::Released) })
            }
            () = tokio::time::sleep(ttl) => Err(SubagentError::Ended { end: SubagentEnd::Swept }),
            reply = state.run_turn(&self.child, task) => Ok(reply?),
        }
    }
}

impl RuntimeState {
    /// Notifies an engine that a sub-agent has ended. Its error is logged only: the end is a fact.
    pub(super) async fn notify_subagent_ended(
        &self,
        engine: &ActiveEngine,
        child: &str,
        end: SubagentEnd,
    ) {
        let request = SubagentEndedRequest {
            child: SessionRef { id: child.to_owned(), ..SessionRef::default() },
            reason: end,
            ..SubagentEndedRequest::default()
        };
        if let Err(error) = engine.on_subagent_ended(request).await {
            tracing::warn!(child, %error, "the engine failed to process the end of a sub-agent");
        }
    }
}
