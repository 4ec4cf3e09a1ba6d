//! Where an engine's code runs: threads of its own, so that what blocks or spins there stalls no
//! one else.

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

/// How far an engine is kept from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// On the host's own threads. Contains panics; for bundled engines only.
    Inline,
    /// On threads of its own. Contains panics, blocking and endless loops.
    #[default]
    Thread,
    /// In a process of its own. Contains everything; for engines that come from a file.
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

/// Threads of one engine: one may be lost to a loop without stopping the other's answer.
const THREADS: usize = 2;

/// Stack of such a thread, in bytes: what a main thread has, since authors test on one.
pub(super) const STACK_BYTES: usize = 8 * 1024 * 1024;

/// How long a cancelled call may take to let go of its thread, before the thread counts as lost.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(100);

/// The threads that an engine runs on.
pub(super) enum EngineThreads {
    Inline,
    Own { runtime: Option<Runtime>, lost: AtomicBool },
}

impl EngineThreads {
    /// Starts the threads of the engine `id`.
    ///
    /// # Errors
    ///
    /// When the system gives no threads.
    pub(super) fn open(
        id: &str,
        isolation: Isolation,
        watch: &BuildGuard,
    ) -> std::io::Result<EngineThreads> {
        if isolation == Isolation::Inline {
            return Ok(EngineThreads::Inline);
        }
        Ok(EngineThreads::Own {
            runtime: Some(build_runtime(id, watch)?),
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
                let _given_up = CallAbortGuard(task.abort_handle());
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

    /// Lets go of the engine's handle, which runs the engine's own code where it is the last one: on a
    /// thread that may be left behind.
    pub(super) fn release(
        &self,
        id: &str,
        watch: ThreadGuard,
        handle: EngineHandle,
        limit: Duration,
    ) {
        if matches!(self, EngineThreads::Inline) {
            return drop(handle);
        }
        let (tell, told) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("drop-{id}"));
        let dropping = move || {
            watch.run(|| drop(handle));
            drop(tell);
        };
        if let Err(error) = thread.stack_size(STACK_BYTES).spawn(dropping) {
            tracing::warn!(engine = id, %error, "there is no thread to drop it on");
            return;
        }
        if told.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let limit_ms = limit.as_millis();
            tracing::warn!(
                engine = id,
                "its drop took longer than {limit_ms} ms (timeouts.dispose_ms); its thread is left behind"
            );
        }
    }

    /// Whether one of them is held by a call that was given up.
    pub(super) fn has_lost_thread(&self) -> bool {
        matches!(self, EngineThreads::Own { lost, .. } if lost.load(Ordering::Relaxed))
    }
}

/// Threads for the code of the engine `id`, with a timer and nothing else.
pub(super) fn build_runtime(id: &str, watch: &BuildGuard) -> std::io::Result<Runtime> {
    let (begins, ends) = (watch.thread_guard(), watch.thread_guard());
    Builder::new_multi_thread()
        .on_thread_start(move || begins.bind_thread())
        .on_thread_stop(move || ends.unbind_thread())
        .worker_threads(THREADS)
        .thread_stack_size(STACK_BYTES)
        .thread_name(format!("engine-{id}"))
        .enable_time()
        .build()
}

/// A call whose caller gave it up ends where it waits next.
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
            // Waiting here could wait for ever: a lost thread never comes back.
            runtime.shutdown_background();
        }
    }
}

/// Waits for `work` as long as the call's deadline, which progress may move, lies ahead.
pub(super) async fn until_deadline<T>(
    call: &CallGuard,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    loop {
        let deadline = Instant::from_std(call.deadline());
        tokio::select! {
            biased;
            answer = &mut work => return Some(answer),
            () = tokio::time::sleep_until(deadline) => {
                if call.deadline() <= deadline.into_std() {
                    return None;
                }
            }
        }
    }
}

/// The words for a call that took too long, before its limit is known.
pub(super) const TIMEOUT_MESSAGE: &str = "took longer than its time limit";

pub(super) fn timeout_error() -> EngineError {
    EngineError::new(ErrorKind::Deadline, TIMEOUT_MESSAGE)
}

pub(super) fn task_error(reason: &str) -> EngineError {
    EngineError::new(ErrorKind::Panicked, format!("its task died: {reason}"))
}
