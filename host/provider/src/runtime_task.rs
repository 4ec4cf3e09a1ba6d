//! Runs the work of a service on the host's runtime, whichever thread waits for it.

use std::future::Future;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{EngineError, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Runs `work` on a runtime. Dropping the returned future cancels it.
pub(crate) fn run<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<Result<T>> {
    let runtime = runtime.clone();
    Box::pin(async move {
        // Engines wait on threads without a runtime, and connections belong to this one.
        let task = AbortOnDropHandle::new(runtime.spawn(work));
        let cancelled = |_| EngineError::new(ErrorKind::Cancelled, "the host is shutting down");
        task.await.map_err(cancelled)?
    })
}
