//! The thread that talks to the database: a session waits for it as it waits for a disk.

use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the end of a store waits for what was left to be done later, such as giving a session back.
/// A lease that is not given back ends by itself, so a dead network should not hold up the end of a
/// program.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// A thread with a tokio runtime of its own, so that whoever waits for it may stand on any thread,
/// in a runtime or in none.
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
                // What is not done by then is found undone by the next machine.
                let _ = tokio::time::timeout(SHUTDOWN_GRACE, done.wait()).await;
            });
        })?;
        Ok(DatabaseThread { handle, later, end, thread: Mutex::new(Some(thread)) })
    }

    /// Does something and waits for it on this thread. `None` where the store is at its end.
    pub(super) fn block_on<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // Nobody has stopped waiting: the receiver stands on a thread that does nothing else.
            let _ = done.send(work.await);
        });
        answer.recv().ok()
    }

    /// Does something and waits for it in a runtime. Dropping the future breaks it off.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let task = self.handle.spawn(work);
        let _abort = QueryAbortGuard(task.abort_handle());
        task.await.ok()
    }

    /// Does something as long as the store is there.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Does something while nobody waits. The end of the store waits for it a little.
    pub(super) fn spawn_deferred(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.later.spawn_on(work, &self.handle);
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        self.later.close();
        self.end.cancel();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner may be a task of the thread itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

struct QueryAbortGuard(AbortHandle);

impl Drop for QueryAbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
