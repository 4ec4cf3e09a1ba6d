//! Where an engine runs: in this process or in a sandbox. Nobody above knows which.

use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineHandle, EngineReply};
use ctxhost_engine_api::*;

use super::calls::CallGuard;
use super::threads::EngineThreads;
use super::watch::ThreadWatch;
use super::worker::{Sandbox, WorkerFacts};

/// The place of one engine.
pub(super) enum Backend {
    InProcess(Box<InProcess>),
    Sandbox(Box<Sandbox>),
}

/// An engine in this process.
pub(super) struct InProcess {
    /// Its id.
    pub(super) id: String,
    /// The engine; gone only while this is dropped.
    pub(super) handle: Option<EngineHandle>,
    /// Where its code runs.
    pub(super) threads: EngineThreads,
    /// Who watches the thread that drops it.
    pub(super) watch: ThreadWatch,
    /// What its drop may take, before its thread is left behind.
    pub(super) limit: Duration,
}

impl Backend {
    /// Calls the engine, within the time of the call.
    ///
    /// # Errors
    ///
    /// The engine's own, [`ErrorKind::Deadline`], or [`ErrorKind::Dead`] where its process died.
    pub(super) async fn call(
        &self,
        guard: &CallGuard,
        view: Transcript,
        call: EngineCall,
    ) -> Result<EngineReply> {
        match self {
            Backend::InProcess(here) => {
                let gone = || EngineError::new(ErrorKind::Dead, "it is being dropped");
                let handle = here.handle.as_ref().ok_or_else(gone)?;
                here.threads.run(guard, handle.call(view, call)).await
            }
            Backend::Sandbox(sandbox) => sandbox.call(guard, view, call).await,
        }
    }

    /// Takes the host away: whatever the engine still runs, it reaches nothing of it any more.
    pub(super) fn revoke(&self) {
        match self {
            Backend::InProcess(here) => _ = here.handle.as_ref().map(EngineHandle::revoke),
            Backend::Sandbox(sandbox) => sandbox.close(),
        }
    }

    /// Whether a thread of this process hangs in a call that was given up.
    pub(super) fn lost_a_thread(&self) -> bool {
        matches!(self, Backend::InProcess(here) if here.threads.lost_one())
    }

    /// Whether a process of its own that died has another one behind it.
    pub(super) fn may_start_another(&self) -> bool {
        matches!(self, Backend::Sandbox(sandbox) if sandbox.may_start_another())
    }

    /// The process it runs in, where that is one of its own.
    pub(super) fn worker(&self) -> Option<WorkerFacts> {
        match self {
            Backend::InProcess(_) => None,
            Backend::Sandbox(sandbox) => Some(sandbox.facts()),
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.threads.release(&self.id, self.watch.clone(), handle, self.limit);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.revoke();
    }
}
