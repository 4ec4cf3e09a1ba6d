//! Large requests are read on threads of their own: the thread of a connection serves others beside it.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::ClientRequest;

/// From so many bytes on: in fewer stand no more messages than are heard in some milliseconds, and changing threads costs
/// some tens of microseconds.
const LARGE_BYTES: usize = 64 * 1024;

/// Whether reading a request takes long enough that others would notice.
pub(super) fn is_large(incoming: &ClientRequest) -> bool {
    incoming.body.len() >= LARGE_BYTES
}

/// Does work on a thread of its own. It is done to its end, whether anybody still waits for it or not. How many there are
/// at a time is bounded by `gateway.max_bodies_bytes`.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let threads = Handle::current();
    match spawn_blocking(move || threads.block_on(work)).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The threads end, and with them whoever waits here.
            Err(_) => std::future::pending().await,
        },
    }
}
