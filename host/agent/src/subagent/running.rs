//! The sub-agents that run in this process.

use std::collections::HashMap;
use std::sync::Arc;

use ctxhost_engine_api::SubagentEnd;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Sub-agents of this process that run, or whose end is not recorded yet. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningSubagents {
    runs: Arc<Mutex<HashMap<String, RunState>>>,
}

#[derive(Debug)]
enum RunState {
    /// With the channel that stops it, until it is used.
    Running(Option<oneshot::Sender<SubagentEnd>>),
    Ended(SubagentEnd),
}

/// What this process knows of a sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubagentStatus {
    Running,
    Ended(SubagentEnd),
    Unknown,
}

impl RunningSubagents {
    /// Registers a run. It becomes unknown if the guard is dropped before its end.
    pub(super) fn start(&self, child: &str) -> (RunGuard, oneshot::Receiver<SubagentEnd>) {
        let (stop, stopped) = oneshot::channel();
        self.runs.lock().insert(child.to_owned(), RunState::Running(Some(stop)));
        (RunGuard { running: self.clone(), child: child.to_owned() }, stopped)
    }

    /// Stops a run; returns whether it was running.
    pub(super) fn stop(&self, child: &str, end: SubagentEnd) -> bool {
        match self.runs.lock().get_mut(child) {
            Some(RunState::Running(stop)) => {
                // Sending fails if the run has just ended by itself.
                let _ = stop.take().map(|stop| stop.send(end));
                true
            }
            _ => false,
        }
    }

    pub(super) fn status(&self, child: &str) -> SubagentStatus {
        match self.runs.lock().get(child) {
            Some(RunState::Running(_)) => SubagentStatus::Running,
            Some(RunState::Ended(end)) => SubagentStatus::Ended(*end),
            None => SubagentStatus::Unknown,
        }
    }

    /// Whether a run has ended and its end is not recorded yet.
    pub(super) fn has_ended(&self, child: &str) -> bool {
        matches!(self.status(child), SubagentStatus::Ended(_))
    }

    /// Removes a run whose end is recorded.
    pub(super) fn forget(&self, child: &str) {
        self.runs.lock().remove(child);
    }
}

/// Keeps a run registered.
#[derive(Debug)]
pub(super) struct RunGuard {
    running: RunningSubagents,
    child: String,
}

impl RunGuard {
    pub(super) fn end(&self, end: SubagentEnd) {
        self.running.runs.lock().insert(self.child.clone(), RunState::Ended(end));
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut runs = self.running.runs.lock();
        // An ended run stays until its end is recorded.
        if let Some(RunState::Running(_)) = runs.get(&self.child) {
            runs.remove(&self.child);
        }
    }
}
