//! The threads that run an engine's code: its own, so that code that blocks or spins stalls only itself.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::{EngineError, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::build_guard::{BuildGuard, ThreadGuard};
use super::calls::CallGuard;
use super::timeouts::{group_thousands, timeout_error};

/// The isolation of an engine from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// On the host's own threads. Contains panics; for bundled engines only.
    Inline,
    /// On threads of its own. Contains panics, blocking and endless loops.
    #[default]
    Thread,
    /// In a sandboxed process. Contains everything; for engines that come from a file.
    Process,
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Isolation::Inline => "inline",
            Isolation::Thread => "thread",
            Isolation::Process => "process",
        })
    }
}

/// Threads of one engine: while one hangs in an endless loop, the other still answers.
const THREADS: usize = 2;

/// Stack size of these threads in bytes: that of a main thread, on which authors run their tests.
pub(super) const STACK_BYTES: usize = 8 * 1024 * 1024;

/// The time a cancelled call has to return its thread before the thread counts as lost.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(100);

/// The threads that an engine runs on.
pub(super) enum EngineThreads {
    Inline,
    Own { runtime: Option<Runtime>, lost: AtomicBool },
}

impl EngineThreads {
    /// Starts the threads of an engine.
    ///
    /// # Errors
    ///
    /// When the system starts no threads.
    pub(super) fn open(
        id: &str,
        isolation: Isolation,
        guard: &BuildGuard,
    ) -> std::io::Result<EngineThreads> {
        if isolation == Isolation::Inline {
            return Ok(EngineThreads::Inline);
        }
        Ok(EngineThreads::Own {
            runtime: Some(build_runtime(id, guard)?),
            lost: AtomicBool::new(false),
        })
    }

    /// Runs one call to its end or to its deadline, whichever comes first.
    ///
    /// # Errors
    ///
    /// The call's own, or [`ErrorKind::Deadline`].
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: &CallGuard,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let work = call.scope(work);
        match self {
            EngineThreads::Inline => {
                until_deadline(call, work).await.unwrap_or_else(|| Err(timeout_error()))
            }
            EngineThreads::Own { runtime: Some(runtime), lost } => {
                let mut task = runtime.spawn(work);
                // Dropping the task alone would detach it, and it would run on without a caller.
                let _abort = CallAbortGuard(task.abort_handle());
                if let Some(ended) = until_deadline(call, &mut task).await {
                    return ended.unwrap_or_else(|died| Err(task_error(&died.to_string())));
                }
                task.abort();
                if tokio::time::timeout(CANCEL_GRACE, task).await.is_err() {
                    lost.store(true, Ordering::Relaxed);
                }
                Err(timeout_error())
            }
            EngineThreads::Own { runtime: None, .. } => Err(task_error("its threads have ended")),
        }
    }

    /// Drops the engine's handle within a time limit.
    pub(super) fn release(
        &self,
        id: &str,
        guard: ThreadGuard,
        handle: EngineHandle,
        limit: Duration,
    ) {
        if matches!(self, EngineThreads::Inline) {
            return drop(handle);
        }
        let (done, finished) = mpsc::channel::<()>();
        // The last handle runs the engine's destructor, which may hang: on a thread that can be abandoned.
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

    /// Whether one of the threads hangs in a cancelled call.
    pub(super) fn has_lost_thread(&self) -> bool {
        matches!(self, EngineThreads::Own { lost, .. } if lost.load(Ordering::Relaxed))
    }
}

/// A runtime for the code of an engine, with a timer and without I/O.
pub(super) fn build_runtime(id: &str, guard: &BuildGuard) -> std::io::Result<Runtime> {
    let (begins, ends) = (guard.thread_guard(), guard.thread_guard());
    Builder::new_multi_thread()
        .on_thread_start(move || begins.bind_thread())
        .on_thread_stop(move || ends.unbind_thread())
        .worker_threads(THREADS)
        .thread_stack_size(STACK_BYTES)
        .thread_name(format!("engine-{id}"))
        .enable_time()
        .build()
}

/// Aborts a call at its next await point when its caller drops it.
struct CallAbortGuard(AbortHandle);

impl Drop for CallAbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        if let EngineThreads::Own { runtime, .. } = self
            && let Some(runtime) = runtime.take()
        {
            // Waiting could take forever: a lost thread never returns.
            runtime.shutdown_background();
        }
    }
}

/// Runs `work` up to the deadline of its call; `None` where it passed. Progress moves the deadline.
pub(super) async fn until_deadline<T>(
    call: &CallGuard,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    loop {
        let deadline = Instant::from_std(call.deadline());
        tokio::select! {
            // Biased: a reply that is ready at the deadline counts as in time.
            biased;
            answer = &mut work => return Some(answer),
            () = tokio::time::sleep_until(deadline) => {
                // A progress report may have moved the deadline during the sleep.
                if call.deadline() <= deadline.into_std() {
                    return None;
                }
            }
        }
    }
}

pub(super) fn task_error(reason: &str) -> EngineError {
    EngineError::new(ErrorKind::Panicked, format!("its task died: {reason}"))
}
