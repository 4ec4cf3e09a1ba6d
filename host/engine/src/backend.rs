//! Where an engine runs: in this process or in a sandbox. No layer above this file distinguishes them.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineHandle, EngineReply};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::*;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::build_guard::ThreadGuard;
use super::calls::CallGuard;
use super::sandbox::info::SandboxInfo;
use super::threads::{CANCEL_GRACE, EngineThreads, STACK_BYTES, task_error, until_deadline};
use super::timeouts::timeout_error;

/// A pending reply of an engine.
pub(super) type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<EngineReply>> + Send + 'a>>;

/// Where one engine runs.
pub(super) trait EngineBackend: Send + Sync {
    /// Calls the engine up to the deadline of the call.
    ///
    /// # Errors
    ///
    /// The engine's own, [`ErrorKind::Deadline`], or [`ErrorKind::Dead`] where its process died.
    fn call<'a>(
        &'a self,
        guard: &'a CallGuard,
        view: Transcript,
        call: EngineCall,
    ) -> ReplyFuture<'a>;

    /// Revokes the services of the host: code of the engine that still runs cannot use them.
    fn revoke(&self);

    /// Whether a thread of this process hangs in a cancelled call.
    fn has_lost_thread(&self) -> bool {
        false
    }

    /// Whether a sandbox that died is restarted.
    fn can_restart(&self) -> bool {
        false
    }

    /// Forgets earlier restarts of a sandbox.
    fn forget_restarts(&self) {}

    /// The state of the sandbox, where the engine runs in one.
    fn sandbox_info(&self) -> Option<SandboxInfo> {
        None
    }
}

/// An engine in this process.
pub(super) struct InProcess {
    /// The engine's id.
    pub(super) id: String,
    /// The engine; `None` only during the drop.
    pub(super) handle: Option<EngineHandle>,
    /// The threads that run its code; `None` for the host's own.
    pub(super) threads: Option<(EngineThreads, Handle)>,
    /// The crash attribution of the thread that drops it.
    pub(super) guard: ThreadGuard,
    /// The time limit of its drop, after which the thread is abandoned.
    pub(super) limit: Duration,
    /// Whether one of its threads hangs in a cancelled call.
    pub(super) has_lost_thread: AtomicBool,
}

impl EngineBackend for InProcess {
    fn call<'a>(
        &'a self,
        guard: &'a CallGuard,
        view: Transcript,
        call: EngineCall,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let gone = || EngineError::new(ErrorKind::Dead, "the engine is being dropped");
            let work = guard.scope(self.handle.as_ref().ok_or_else(gone)?.call(view, call));
            let Some((_, threads)) = &self.threads else {
                return until_deadline(guard, work).await.unwrap_or_else(|| Err(timeout_error()));
            };
            // Dropping a plain handle would detach the task, and it would run on without a caller.
            let mut task = AbortOnDropHandle::new(threads.spawn(work));
            if let Some(ended) = until_deadline(guard, &mut task).await {
                return ended.unwrap_or_else(|died| Err(task_error(&died.to_string())));
            }
            task.abort();
            if tokio::time::timeout(CANCEL_GRACE, task).await.is_err() {
                self.has_lost_thread.store(true, Ordering::Relaxed);
            }
            Err(timeout_error())
        })
    }

    fn revoke(&self) {
        self.handle.iter().for_each(EngineHandle::revoke);
    }

    fn has_lost_thread(&self) -> bool {
        self.has_lost_thread.load(Ordering::Relaxed)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.revoke();
        let Some(handle) = self.handle.take() else { return };
        match self.threads {
            Some(_) => drop_handle(&self.id, self.guard.clone(), handle, self.limit),
            None => drop(handle),
        }
    }
}

/// Drops the last handle of an engine within a time limit.
fn drop_handle(id: &str, guard: ThreadGuard, handle: EngineHandle, limit: Duration) {
    let (done, finished) = mpsc::channel::<()>();
    // It runs the engine's destructor, which may hang: on a thread that can be abandoned.
    let thread = std::thread::Builder::new().name(format!("drop-{id}"));
    let dropping = move || {
        guard.run(|| drop(handle));
        drop(done);
    };
    if let Err(error) = thread.stack_size(STACK_BYTES).spawn(dropping) {
        tracing::warn!(engine = id, %error, "no thread to drop the engine on");
        return;
    }
    if finished.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        let limit_ms = group_thousands(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        tracing::warn!(
            engine = id,
            "drop exceeded {limit_ms} ms (timeouts.dispose_ms); its thread is abandoned"
        );
    }
}
