//! A sub-agent at work: to its last word, to its time, or until somebody ends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctxhost_engine_api::{SessionRef, SubagentEnd, SubagentEndedRequest};
use tokio::sync::oneshot;

use super::ChildError;
use crate::agent::{SessionId, Shared};
use crate::event::What;
use crate::turn::Reply;
use ctxhost_dialects::Content;
use ctxhost_engine::ActiveEngine;

/// The sub-agents of this process that work, or have ended and are not recorded yet. Clones are the
/// same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    children: Arc<Mutex<HashMap<String, Run>>>,
}

#[derive(Debug)]
enum Run {
    /// What ends it, until somebody has used it.
    AtWork(Option<oneshot::Sender<SubagentEnd>>),
    Ended(SubagentEnd),
}

/// What this process knows of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    Ended(SubagentEnd),
    Unknown,
}

impl Running {
    /// A child begins to work. It counts as dropped when the guard goes before its end.
    fn begin(&self, child: &str) -> (AtWork, oneshot::Receiver<SubagentEnd>) {
        let (stop, stopped) = oneshot::channel();
        self.children().insert(child.to_owned(), Run::AtWork(Some(stop)));
        (AtWork { running: self.clone(), child: child.to_owned() }, stopped)
    }

    /// Ends a child; whether it was at work.
    pub(super) fn stop(&self, child: &str, end: SubagentEnd) -> bool {
        match self.children().get_mut(child) {
            Some(Run::AtWork(stop)) => {
                // A receiver that is gone has just ended by itself.
                let _ = stop.take().map(|stop| stop.send(end));
                true
            }
            _ => false,
        }
    }

    /// What is known of a child.
    pub(super) fn status(&self, child: &str) -> Status {
        match self.children().get(child) {
            Some(Run::AtWork(_)) => Status::Running,
            Some(Run::Ended(end)) => Status::Ended(*end),
            None => Status::Unknown,
        }
    }

    /// Whether a child has ended and is not recorded yet.
    pub(super) fn has_ended(&self, child: &str) -> bool {
        matches!(self.status(child), Status::Ended(_))
    }

    /// The end is recorded.
    pub(super) fn forget(&self, child: &str) {
        self.children().remove(child);
    }

    fn children(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child that works.
#[derive(Debug)]
struct AtWork {
    running: Running,
    child: String,
}

impl AtWork {
    fn ended(&self, end: SubagentEnd) {
        self.running.children().insert(self.child.clone(), Run::Ended(end));
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut children = self.running.children();
        if let Some(Run::AtWork(_)) = children.get(&self.child) {
            children.remove(&self.child);
        }
    }
}

/// A child that was started and has said nothing yet.
#[derive(Debug)]
pub(crate) struct Begun {
    parent: String,
    child: SessionId,
    task: String,
    /// The slot whose engine was asked: it is told of the end as well.
    slot: Arc<ActiveEngine>,
    at_work: AtWork,
    stopped: oneshot::Receiver<SubagentEnd>,
}

impl Begun {
    pub(super) fn new(
        shared: &Shared,
        slot: &Arc<ActiveEngine>,
        parent: String,
        child: SessionId,
        task: &str,
    ) -> Begun {
        let (at_work, stopped) = shared.running.begin(child.as_str());
        Begun { parent, child, task: task.to_owned(), slot: slot.clone(), at_work, stopped }
    }

    /// Its session.
    pub(super) fn session(&self) -> &SessionId {
        &self.child
    }

    /// Lets it work to its end, of which the engine is told. The session of the child is closed then.
    pub(super) async fn run(mut self, shared: &Arc<Shared>) -> Result<Reply, ChildError> {
        let outcome = self.work(shared).await;
        let end = outcome.as_ref().map_or_else(ChildError::end, |_| SubagentEnd::Completed);
        shared.child_ended(&self.slot, self.child.as_str(), end).await;
        shared.close(self.child.as_str());
        self.at_work.ended(end);
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let child = self.child.to_string();
        shared.tell(&self.parent, What::SubagentEnded { child, end, failure });
        outcome
    }

    async fn work(&mut self, shared: &Arc<Shared>) -> Result<Reply, ChildError> {
        let ttl = Duration::from_millis(shared.settings.subagent_ttl_ms);
        let task = vec![Content::text(&self.task)];
        tokio::select! {
            biased;
            end = &mut self.stopped => {
                Err(ChildError::Ended { end: end.unwrap_or(SubagentEnd::Released) })
            }
            () = tokio::time::sleep(ttl) => Err(ChildError::Ended { end: SubagentEnd::Swept }),
            reply = shared.converse(&self.child, task) => Ok(reply?),
        }
    }
}

impl Shared {
    /// Tells the engine that a child ended. That it did is a fact, whatever the engine makes of it.
    pub(super) async fn child_ended(&self, slot: &ActiveEngine, child: &str, end: SubagentEnd) {
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
