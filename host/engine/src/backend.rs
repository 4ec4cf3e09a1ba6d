//! Where an engine runs: in this process or in a sandbox. No layer above this file distinguishes them.

use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineHandle, EngineReply};
use ctxhost_engine_api::*;

use super::build_guard::ThreadGuard;
use super::calls::CallGuard;
use super::sandbox::info::SandboxInfo;
use super::sandbox::supervisor::SandboxSupervisor;
use super::threads::EngineThreads;

/// Where one engine runs.
pub(super) enum EngineBackend {
    InProcess(Box<InProcess>),
    Sandbox(Box<SandboxSupervisor>),
}

/// An engine in this process.
pub(super) struct InProcess {
    /// The engine's id.
    pub(super) id: String,
    /// The engine; `None` only during the drop.
    pub(super) handle: Option<EngineHandle>,
    /// The threads that run its code.
    pub(super) threads: EngineThreads,
    /// The crash attribution of the thread that drops it.
    pub(super) guard: ThreadGuard,
    /// The time limit of its drop, after which the thread is abandoned.
    pub(super) limit: Duration,
}

impl EngineBackend {
    /// Calls the engine within the time limit of the call.
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
            EngineBackend::InProcess(local) => {
                let gone = || EngineError::new(ErrorKind::Dead, "the engine is being dropped");
                let handle = local.handle.as_ref().ok_or_else(gone)?;
                local.threads.run(guard, handle.call(view, call)).await
            }
            EngineBackend::Sandbox(sandbox) => sandbox.call(guard, view, call).await,
        }
    }

    /// Revokes the services of the host: code of the engine that still runs cannot use them.
    pub(super) fn revoke(&self) {
        match self {
            EngineBackend::InProcess(local) => _ = local.handle.as_ref().map(EngineHandle::revoke),
            EngineBackend::Sandbox(sandbox) => sandbox.close(),
        }
    }

    /// Whether a thread of this process hangs in a cancelled call.
    pub(super) fn has_lost_thread(&self) -> bool {
        matches!(self, EngineBackend::InProcess(local) if local.threads.has_lost_thread())
    }

    /// Whether a sandbox that died is restarted.
    pub(super) fn can_restart(&self) -> bool {
        matches!(self, EngineBackend::Sandbox(sandbox) if sandbox.can_restart())
    }

    /// The state of the sandbox, where the engine runs in one.
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
