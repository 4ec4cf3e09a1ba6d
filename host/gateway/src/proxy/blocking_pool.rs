//! Runs large requests on the blocking pool, because a connection's thread serves other connections as well.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::messages::ClientRequest;

/// Requests of this size are moved. Smaller ones are ingested within a few milliseconds, and a thread switch costs tens
/// of microseconds.
const LARGE_BYTES: usize = 64 * 1024;

/// Whether ingesting a request would noticeably delay other connections.
pub(super) fn is_large(request: &ClientRequest) -> bool {
    request.body.len() >= LARGE_BYTES
}

/// Runs work on a blocking thread, to its end even if the caller is dropped. `gateway.max_bodies_bytes` bounds how many
/// of these run at a time.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let runtime = Handle::current();
    match spawn_blocking(move || runtime.block_on(work)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
