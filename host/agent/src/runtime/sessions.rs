//! Opens, creates and closes the sessions of a runtime.

use std::path::Path;

use futures_util::future::BoxFuture;

use super::Runtime;
use crate::error::TurnError;
use crate::session_cell::SessionId;
use ctxhost_context::LiveSession;
use ctxhost_session::Session;

impl Runtime {
    /// The number of open sessions.
    pub fn open_sessions(&self) -> usize {
        self.state.sessions.lock().len()
    }

    /// Opens a session file. Messages that a dead process left in the inbox are delivered in the next
    /// turn; a compaction that it computed and did not record is recorded now.
    ///
    /// # Errors
    ///
    /// As [`Session::open`], or if the inbox file cannot be read.
    pub fn open_session(&self, path: &Path) -> Result<SessionId, TurnError> {
        self.adopt_session(Session::open(path)?)
    }

    /// Creates a session in a new file. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// As [`Session::create`].
    pub fn create_session(&self, path: &Path, cwd: &Path) -> Result<SessionId, TurnError> {
        self.adopt_session(Session::create(path, &absolute(cwd), None)?)
    }

    /// Adds a session that is already open, such as one in memory or of a store. Turns of the latter wait for
    /// those of other machines.
    ///
    /// # Errors
    ///
    /// If its inbox file cannot be read.
    pub fn adopt_session(&self, session: Session) -> Result<SessionId, TurnError> {
        Ok(self.state.register(session, None)?)
    }

    /// Closes a session after its current turn. Its file can be opened again afterwards.
    pub fn close_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(cell) = self.state.session(session) else { return };
            let _waiter = cell.waiters.add_waiter();
            // No lease: closing writes nothing, so it need not wait for other machines.
            let _lock = self.state.session_locks.lock(session.as_str()).await;
            if self.state.is_open(session, &cell) {
                self.state.close(session.as_str());
            }
        })
    }

    /// Calls `read` with a session, between two turns.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn with_session<T>(
        &self,
        session: &SessionId,
        read: impl FnOnce(&LiveSession) -> T,
    ) -> Result<T, TurnError> {
        let cell = self.state.session(session)?;
        let active = cell.active.lock().await;
        Ok(read(active.context.session()))
    }
}

fn absolute(folder: &Path) -> String {
    // Stored in the session file, which other processes open from other folders.
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}
