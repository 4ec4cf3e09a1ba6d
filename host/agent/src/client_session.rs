//! Sessions whose model a client asks itself: how they are taken over and locked, and what the runtime does for them.

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::runtime::{Runtime, SessionId};
use super::session_guard::SessionGuard;
use super::turn::TurnError;
use ctxhost_context::CompactionPolicy;
use ctxhost_models::ModelRegistry;
use ctxhost_session::{Session, SyncPolicy};

/// A client sends again what the disk had not got, so nobody waits for it.
pub(super) const CLIENT_SYNC: SyncPolicy = SyncPolicy::Os;

impl Runtime {
    /// Waits until a session is free. No model need be configured for it.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`], or where another machine cannot be waited for.
    pub fn lock_session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<SessionGuard, TurnError>> {
        Box::pin(async move {
            let shared = self.state();
            let held = shared.session(session)?;
            let lane = shared.lock_cell(session, &held).await?;
            Ok(SessionGuard::new(shared, &held, lane).await)
        })
    }

    /// Takes over a session of a client who has all of it and sends it again, so that no append need be waited for.
    /// One in memory is put on a disk by [`SessionGuard::keep_in`].
    ///
    /// # Errors
    ///
    /// As [`Runtime::adopt_session`].
    pub fn attach_session(&self, session: Session) -> Result<SessionId, TurnError> {
        let mut session = session.with_sync(CLIENT_SYNC);
        session.enable_write_behind();
        Ok(self.state().register_synced(session, None)?)
    }

    /// Does something in the background; [`Runtime::finish`] waits for it. A program whose threads have ended does no
    /// more.
    pub fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(threads) = Handle::try_current() {
            self.state().background.spawn_on(work, &threads);
        }
    }

    /// Now, in milliseconds since 1970, by the clock of this runtime.
    pub fn now_ms(&self) -> i64 {
        self.state().clock().now_ms()
    }

    /// The windows of models.
    pub fn models(&self) -> &ModelRegistry {
        &self.state().models
    }

    /// When the host may compact on the way to a prompt of a client; `mid_turn` says that tools have run already. A
    /// client cannot be asked to compact by hand.
    pub fn policy_for_client(&self, mid_turn: bool) -> CompactionPolicy {
        match CompactionPolicy::for_request(&self.state().compaction, mid_turn) {
            CompactionPolicy::Never => CompactionPolicy::WhenNeeded,
            policy => policy,
        }
    }
}
