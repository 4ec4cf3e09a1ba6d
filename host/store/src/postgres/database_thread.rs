//! The thread that runs all database work. Callers block on it, as they do on a disk.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// How long closing a store waits for deferred work, such as releasing leases. A lease that is not released
/// expires, so an unreachable database must not delay the end of a program.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// A thread with its own tokio runtime, so that callers may be on any thread, inside a runtime or not.
#[derive(Debug)]
pub(super) struct DatabaseThread {
    handle: Handle,
    later: TaskTracker,
    end: CancellationToken,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl DatabaseThread {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<DatabaseThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (later, end) = (TaskTracker::new(), CancellationToken::new());
        let handle = runtime.handle().clone();
        let (done, ending) = (later.clone(), end.clone());
        let thread = std::thread::Builder::new().name("ctxhost-store".into()).spawn(move || {
            runtime.block_on(async move {
                ending.cancelled().await;
                // Leases and messages that are not released expire.
                let _ = tokio::time::timeout(SHUTDOWN_GRACE, done.wait()).await;
            });
        })?;
        Ok(DatabaseThread { handle, later, end, thread: Mutex::new(Some(thread)) })
    }

    /// Runs work and blocks until it is done. `None` if the thread has ended.
    pub(super) fn block_on<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        // A channel, because `Handle::block_on` panics on a thread of another runtime.
        let (done, answer) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // The receiver cannot be dropped: its thread is blocked in `recv`.
            let _ = done.send(work.await);
        });
        answer.recv().ok()
    }

    /// Runs work and awaits it. Dropping the future aborts the work.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        AbortOnDropHandle::new(self.handle.spawn(work)).await.ok()
    }

    /// Spawns work that ends with the store.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Spawns work that closing the store waits for.
    pub(super) fn spawn_deferred(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.later.spawn_on(work, &self.handle);
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        self.later.close();
        self.end.cancel();
        let thread = self.thread.get_mut().take();
        // A thread cannot join itself, and the last owner may be one of its tasks.
        if let Some(thread) =
            thread.filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}
