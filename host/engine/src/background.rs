//! Background tasks of engines, which end with their engine, and `sleep`.

use std::time::Duration;

use ctxhost_engine_api::border::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// The background tasks of one engine, which are aborted when it is dropped.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    running: Mutex<Vec<AbortOnDropHandle<()>>>,
}

impl BackgroundTasks {
    /// Runs a task on the calling thread's runtime; false on a thread without one, which the engine
    /// started itself.
    pub(super) fn spawn(&self, task: BoxFuture<()>) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let task = AbortOnDropHandle::new(runtime.spawn(task));
        let mut running = self.running.lock();
        running.retain(|task| !task.is_finished());
        running.push(task);
        true
    }
}

/// Sleeps, wherever the engine polls the future.
pub(super) fn sleep(milliseconds: u64) -> BoxFuture<()> {
    let duration = Duration::from_millis(milliseconds);
    Box::pin(async move {
        if Handle::try_current().is_ok() {
            return tokio::time::sleep(duration).await;
        }
        // A thread that the engine started itself has no runtime, and so no timer.
        let (wake, woken) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(duration);
            let _ = wake.send(());
        });
        let _ = woken.await;
    })
}
