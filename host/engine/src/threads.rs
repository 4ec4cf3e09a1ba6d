//! The threads that run an engine's code: its own, so that code that blocks or spins stalls only itself.

use std::future::Future;
use std::time::Duration;

use ctxhost_engine_api::{EngineError, ErrorKind};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use super::build_guard::BuildGuard;
use super::calls::CallGuard;

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

/// The threads of one engine.
pub(super) struct EngineThreads(Option<Runtime>);

impl EngineThreads {
    /// Starts threads for the code of an engine, with a timer and without I/O.
    ///
    /// # Errors
    ///
    /// When the system starts no threads.
    pub(super) fn start(id: &str, guard: &BuildGuard) -> std::io::Result<(EngineThreads, Handle)> {
        let (begins, ends) = (guard.thread_guard(), guard.thread_guard());
        let runtime = Builder::new_multi_thread()
            .on_thread_start(move || begins.bind_thread())
            .on_thread_stop(move || ends.unbind_thread())
            .worker_threads(THREADS)
            .thread_stack_size(STACK_BYTES)
            .thread_name(format!("engine-{id}"))
            .enable_time()
            .build()?;
        let handle = runtime.handle().clone();
        Ok((EngineThreads(Some(runtime)), handle))
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting could take forever: a lost thread never returns, and a store may block.
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
