//! Work on files, off the threads that serve everybody, ended when nobody waits for it any more.

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::error::ToolError;

/// Tells work whether anybody still waits for it.
#[derive(Clone, Debug)]
pub(super) struct CancelFlag(CancellationToken);

impl CancelFlag {
    /// Whether nobody waits any more. Long work asks this in its loop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// An error once nobody waits. Work that changes something asks this before it does.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.is_cancelled() { Err(ToolError::Cancelled) } else { Ok(()) }
    }
}

/// Does work on a thread of its own. Dropping the future asks the work to stop.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce(&CancelFlag) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let token = CancellationToken::new();
    let stop = CancelFlag(token.clone());
    let _asks_on_drop = token.drop_guard();
    let done = spawn_blocking(move || {
        stop.check()?;
        work(&stop)
    });
    match done.await {
        Ok(result) => result,
        // The box answers for panics, wherever they happen.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::Cancelled),
    }
}
