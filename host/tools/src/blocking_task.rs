//! Runs file operations on blocking threads, and cancels them when the caller is dropped.

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::error::ToolError;

/// Shows whether the caller was dropped.
#[derive(Clone, Debug)]
pub(super) struct CancelFlag(CancellationToken);

impl CancelFlag {
    /// Whether the caller was dropped. Long work checks this in its loop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// An error if the caller was dropped. Work with side effects checks this first.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.is_cancelled() { Err(ToolError::Cancelled) } else { Ok(()) }
    }
}

/// Runs work on a blocking thread. Dropping the future cancels it.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce(&CancelFlag) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let token = CancellationToken::new();
    let cancel = CancelFlag(token.clone());
    let _asks_on_drop = token.drop_guard();
    let done = spawn_blocking(move || {
        cancel.check()?;
        work(&cancel)
    });
    match done.await {
        Ok(result) => result,
        // The registry handles panics.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::Cancelled),
    }
}
