//! A sub-agent at work: to its last word, to its time, or until somebody ends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctxhost_engine_api::{SessionRef, SubagentEnd, SubagentEndedRequest};
use tokio::sync::oneshot;

use super::SubagentError;
use crate::event::EventKind;
use crate::runtime::{RuntimeState, SessionId};
use crate::turn::TurnReply;
use ctxhost_dialects::ChatBlock;
use ctxhost_engine::ActiveEngine;

/// The sub-agents of this process that work, or have ended and are not recorded yet. Clones are the
/// same.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningSubagents {
    children: Arc<Mutex<HashMap<String, RunState>>>,
}

#[derive(Debug)]
enum RunState {
    /// What ends it, until somebody has used it.
    Running(Option<oneshot::Sender<SubagentEnd>>),
    Ended(SubagentEnd),
}

/// What this process knows of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubagentStatus {
    Running,
    Ended(SubagentEnd),
    Unknown,
}

impl RunningSubagents {
    /// A child begins to work. It counts as dropped when the guard goes before its end.
    fn start(&self, child: &str) -> (RunGuard, oneshot::Receiver<SubagentEnd>) {
        let (stop, stopped) = oneshot::channel();
        self.children().insert(child.to_owned(), RunState::Running(Some(stop)));
        (RunGuard { running: self.clone(), child: child.to_owned() }, stopped)
    }

    /// Ends a child; whether it was at work.
    pub(super) fn stop(&self, child: &str, end: SubagentEnd) -> bool {
        match self.children().get_mut(child) {
            Some(RunState::Running(stop)) => {
                // A receiver that is gone has just ended by itself.
                let _ = stop.take().map(|stop| stop.send(end));
                true
            }
            _ => false,
        }
    }

    /// What is known of a child.
    pub(super) fn status(&self, child: &str) -> SubagentStatus {
        match self.children().get(child) {
            Some(RunState::Running(_)) => SubagentStatus::Running,
            Some(RunState::Ended(end)) => SubagentStatus::Ended(*end),
            None => SubagentStatus::Unknown,
        }
    }

    /// Whether a child has ended and is not recorded yet.
    pub(super) fn has_ended(&self, child: &str) -> bool {
        matches!(self.status(child), SubagentStatus::Ended(_))
    }

    /// The end is recorded.
    pub(super) fn forget(&self, child: &str) {
        self.children().remove(child);
    }

    fn children(&self) -> MutexGuard<'_, HashMap<String, RunState>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child that works.
#[derive(Debug)]
struct RunGuard {
    running: RunningSubagents,
    child: String,
}

impl RunGuard {
    fn ended(&self, end: SubagentEnd) {
        self.running.children().insert(self.child.clone(), RunState::Ended(end));
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut children = self.running.children();
        if let Some(RunState::Running(_)) = children.get(&self.child) {
            children.remove(&self.child);
        }
    }
}

/// A child that was started and has said nothing yet.
#[derive(Debug)]
pub(crate) struct SubagentRun {
    parent: String,
    child: SessionId,
    task: String,
    /// The slot whose engine was asked: it is told of the end as well.
    engine: Arc<ActiveEngine>,
    guard: RunGuard,
    stopped: oneshot::Receiver<SubagentEnd>,
}

impl SubagentRun {
    pub(super) fn new(
        shared: &RuntimeState,
        slot: &Arc<ActiveEngine>,
        parent: String,
        child: SessionId,
        task: &str,
    ) -> SubagentRun {
        let (at_work, stopped) = shared.running_subagents.start(child.as_str());
        SubagentRun {
            parent,
            child,
            task: task.to_owned(),
            engine: slot.clone(),
            guard: at_work,
            stopped,
        }
    }

    /// Its session.
    pub(super) fn session(&self) -> &SessionId {
        &self.child
    }

    /// Lets it work to its end, of which the engine is told. The session of the child is closed then.
    pub(super) async fn run(
        mut self,
        shared: &Arc<RuntimeState>,
    ) -> Result<TurnReply, SubagentError> {
        let outcome = self.work(shared).await;
        let end = outcome
            .as_ref()
            .map_or_else(SubagentError::to_subagent_end, |_| SubagentEnd::Completed);
        shared.notify_subagent_ended(&self.engine, self.child.as_str(), end).await;
        shared.close(self.child.as_str());
        self.guard.ended(end);
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let child = self.child.to_string();
        shared.emit(&self.parent, EventKind::SubagentEnded { child, end, failure });
        outcome
    }

    async fn work(&mut self, shared: &Arc<RuntimeState>) -> Result<TurnReply, SubagentError> {
        let ttl = Duration::from_millis(shared.settings.subagent_ttl_ms);
        let task = vec![ChatBlock::text(&self.task)];
        tokio::select! {
            biased;
            end = &mut self.stopped => {
                Err(SubagentError::Ended { end: end.unwrap_or(SubagentEnd::Released) })
            }
            () = tokio::time::sleep(ttl) => Err(SubagentError::Ended { end: SubagentEnd::Swept }),
            reply = shared.run_turn(&self.child, task) => Ok(reply?),
        }
    }
}

impl RuntimeState {
    /// Tells the engine that a child ended. That it did is a fact, whatever the engine makes of it.
    pub(super) async fn notify_subagent_ended(
        &self,
        slot: &ActiveEngine,
        child: &str,
        end: SubagentEnd,
    ) {
        let request = SubagentEndedRequest {
            child: SessionRef { id: child.to_owned(), ..SessionRef::default() },
            reason: end,
            ..SubagentEndedRequest::default()
        };
        if let Err(error) = slot.on_subagent_ended(request).await {
            tracing::warn!(child, %error, "the engine could not be told of the end of a sub-agent");
        }
    }
}
