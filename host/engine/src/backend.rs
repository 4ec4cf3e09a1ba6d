//! Where an engine runs: in this process or in a sandbox. Nobody above knows which.

use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineHandle, EngineReply};
use ctxhost_engine_api::*;

use super::build_guard::ThreadGuard;
use super::calls::CallGuard;
use super::sandbox::{SandboxInfo, SandboxSupervisor};
use super::threads::EngineThreads;

/// The place of one engine.
pub(super) enum EngineBackend {
    InProcess(Box<InProcess>),
    Sandbox(Box<SandboxSupervisor>),
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
    pub(super) guard: ThreadGuard,
    /// What its drop may take, before its thread is left behind.
    pub(super) limit: Duration,
}

impl EngineBackend {
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
            EngineBackend::InProcess(here) => {
                let gone = || EngineError::new(ErrorKind::Dead, "it is being dropped");
                let handle = here.handle.as_ref().ok_or_else(gone)?;
                here.threads.run(guard, handle.call(view, call)).await
            }
            EngineBackend::Sandbox(sandbox) => sandbox.call(guard, view, call).await,
        }
    }

    /// Takes the host away: whatever the engine still runs, it reaches nothing of it any more.
    pub(super) fn revoke(&self) {
        match self {
            EngineBackend::InProcess(here) => _ = here.handle.as_ref().map(EngineHandle::revoke),
            EngineBackend::Sandbox(sandbox) => sandbox.close(),
        }
    }

    /// Whether a thread of this process hangs in a call that was given up.
    pub(super) fn has_lost_thread(&self) -> bool {
        matches!(self, EngineBackend::InProcess(here) if here.threads.has_lost_thread())
    }

    /// Whether a process of its own that died has another one behind it.
    pub(super) fn can_restart(&self) -> bool {
        matches!(self, EngineBackend::Sandbox(sandbox) if sandbox.can_restart())
    }

    /// The process it runs in, where that is one of its own.
    pub(super) fn sandbox_info(&self) -> Option<SandboxInfo> {
        match self {
            EngineBackend::InProcess(_) => None,
            EngineBackend::Sandbox(sandbox) => Some(sandbox.info()),
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.threads.release(&self.id, self.guard.clone(), handle, self.limit);
        }
    }
}

impl Drop for EngineBackend {
    fn drop(&mut self) {
        self.revoke();
    }
}
