//! The sessions of a runtime: each file open once, each found by its id.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use super::{Runtime, Shared};
use crate::runtime::conversation::Conversation;
use crate::runtime::turn::TurnError;
use crate::session::{Session, SessionError};

/// The id of a session. Opaque: never a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// As it stands in the session file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Runtime {
    /// Opens a session file.
    ///
    /// # Errors
    ///
    /// As [`Session::open`].
    pub fn open_session(&self, path: &Path) -> Result<SessionId, SessionError> {
        Ok(self.shared.take_in(Session::open(path)?))
    }

    /// Begins a session in a file that is not there yet. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// As [`Session::create`].
    pub fn create_session(&self, path: &Path, cwd: &Path) -> Result<SessionId, SessionError> {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        Ok(self.shared.take_in(Session::create(path, &cwd.display().to_string(), None)?))
    }

    /// Takes over a session that is open already, such as one in memory.
    pub fn adopt_session(&self, session: Session) -> SessionId {
        self.shared.take_in(session)
    }

    /// Closes a session once its turns have ended. Its file can be opened again afterwards.
    pub async fn close_session(&self, session: &SessionId) {
        let _lane = self.shared.lanes.enter(session.as_str()).await;
        self.shared.sessions().remove(session);
        self.shared.known.closed(session.as_str());
    }

    /// Looks at a session between two turns.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn look<T>(
        &self,
        session: &SessionId,
        look: impl FnOnce(&Conversation) -> T,
    ) -> Result<T, TurnError> {
        let open = self.shared.session(session)?;
        let conversation = open.lock().await;
        Ok(look(&conversation))
    }
}

impl Shared {
    pub(super) fn session(
        &self,
        id: &SessionId,
    ) -> Result<Arc<AsyncMutex<Conversation>>, TurnError> {
        let open = self.sessions().get(id).cloned();
        open.ok_or_else(|| TurnError::NoSession { id: id.to_string() })
    }

    fn take_in(&self, session: Session) -> SessionId {
        let id = SessionId(session.header().id().into());
        self.known.opened(&session);
        let conversation = Conversation::new(session, &self.law);
        self.sessions().insert(id.clone(), Arc::new(AsyncMutex::new(conversation)));
        id
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<AsyncMutex<Conversation>>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
