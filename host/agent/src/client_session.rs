//! Sessions whose model is called by a client: attaching and locking them, and runtime services for their host.

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use crate::error::TurnError;
use crate::runtime::Runtime;
use crate::session_cell::SessionId;
use crate::session_guard::{CLIENT_SYNC, SessionGuard};
use ctxhost_context::CompactionPolicy;
use ctxhost_models::ModelRegistry;
use ctxhost_session::Session;

impl Runtime {
    /// Waits for the lock of a session. Works without a configured model.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`], or if the lock across machines cannot be acquired.
    pub fn lock_session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<SessionGuard, TurnError>> {
        Box::pin(async move {
            let state = self.state();
            let cell = state.session(session)?;
            let lock = state.lock_cell(session, &cell).await?;
            Ok(SessionGuard::new(state, &cell, lock).await)
        })
    }

    /// Adds the session of a client that resends its whole history, so appends need not be durable at once. A
    /// session in memory is moved to disk by [`SessionGuard::move_to_file`].
    ///
    /// # Errors
    ///
    /// As [`Runtime::adopt_session`].
    pub fn attach_session(&self, session: Session) -> Result<SessionId, TurnError> {
        let mut session = session.with_sync(CLIENT_SYNC);
        // The gateway writes appended records after it has forwarded the request (`write_out`).
        session.enable_write_behind();
        Ok(self.state().register_synced(session, None)?)
    }

    /// Runs work in the background; [`Runtime::shutdown`] waits for it. Outside of a tokio runtime the work is dropped.
    pub fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(handle) = Handle::try_current() {
            self.state().background.spawn_on(work, &handle);
        }
    }

    /// The time of this runtime's clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.state().clock().now_ms()
    }

    /// The window lookup of this runtime.
    pub fn models(&self) -> &ModelRegistry {
        &self.state().models
    }

    /// When the host may compact for a client's request; `mid_turn` is true after the first tool call.
    pub fn policy_for_client(&self, mid_turn: bool) -> CompactionPolicy {
        match CompactionPolicy::for_request(&self.state().compaction, mid_turn) {
            // A client cannot compact manually, so `Never` would fail its request.
            CompactionPolicy::Never => CompactionPolicy::WhenNeeded,
            policy => policy,
        }
    }
}
