//! What an engine does on the side: tasks that end with it, and waiting, wherever its code runs.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ctxhost_engine_api::border::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// The background tasks of one engine.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    running: Mutex<Vec<AbortHandle>>,
}

impl BackgroundTasks {
    /// Runs a task on the lane that asks; false on a thread of the engine's own, which has none.
    pub(super) fn spawn(&self, task: BoxFuture<()>) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let task = runtime.spawn(task).abort_handle();
        let mut running = self.running();
        running.retain(|task| !task.is_finished());
        running.push(task);
        true
    }

    fn running(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for BackgroundTasks {
    /// The engine is gone: so are its background tasks.
    fn drop(&mut self) {
        self.running().iter().for_each(AbortHandle::abort);
    }
}

/// Waits. The future is polled wherever the engine awaits it: on its lane, which has a timer, or on a
/// thread of the engine's own, which has none.
pub(super) fn sleep(milliseconds: u64) -> BoxFuture<()> {
    let nap = Duration::from_millis(milliseconds);
    Box::pin(async move {
        if Handle::try_current().is_ok() {
            return tokio::time::sleep(nap).await;
        }
        let (wake, woken) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(nap);
            let _ = wake.send(());
        });
        let _ = woken.await;
    })
}
