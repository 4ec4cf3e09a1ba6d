//! A session that a keeper holds, and sessions on their way from one place to another.

use std::sync::Arc;

use super::backend::{InboxBackend, NewSession, SessionBackend, SharedSessionLock};
use super::contents::SessionContents;
use super::error::SessionError;
use super::{Session, SessionStorage, parse};

impl Session {
    /// The session that a keeper has opened, from all of its bytes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_backend(
        name: &str,
        bytes: &[u8],
        keeper: Box<dyn SessionBackend>,
    ) -> Result<Session, SessionError> {
        let session = Session::from_contents(
            parse::parse_bytes(name, bytes)?,
            SessionStorage::Backend(keeper),
        );
        session.check_writable()?;
        Ok(session)
    }

    /// The same session in memory: nothing done to it reaches its file.
    #[must_use]
    pub fn into_memory(self) -> Session {
        Session { store: SessionStorage::Memory, ..self }
    }

    /// The same session for reading alone: appending is refused.
    #[must_use]
    pub fn into_read_only(self) -> Session {
        Session { store: SessionStorage::ReadOnly, ..self }
    }

    /// The same session where `create` keeps it. What a file lacked is put right: an older version is
    /// migrated, and a last line that was cut short stays behind.
    ///
    /// # Errors
    ///
    /// Those of `create`.
    pub fn into_backend(
        mut self,
        found: impl FnOnce(&NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError>,
    ) -> Result<Session, SessionError> {
        let contents = self.contents.load_all()?;
        contents.normalize();
        let (id, cwd) = (contents.header.id(), contents.header.cwd());
        let keeper = found(&NewSession { id, cwd, bytes: &contents.to_bytes() })?;
        Ok(Session { store: SessionStorage::Backend(keeper), ..self })
    }

    /// All of it as another place would keep it: see [`into_backend`](Self::kept_by).
    pub fn normalized_bytes(&self) -> Vec<u8> {
        let mut contents = SessionContents::clone(&self.contents);
        contents.normalize();
        contents.to_bytes()
    }

    /// The same session beside another one, where that is kept by a keeper; otherwise as it is.
    ///
    /// # Errors
    ///
    /// As [`SessionBackend::create`].
    pub fn into_backend_of(self, other: &Session) -> Result<Session, SessionError> {
        match &other.store {
            SessionStorage::Backend(keeper) => {
                self.into_backend(|founding| keeper.create(founding))
            }
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::File(_) => Ok(self),
        }
    }

    /// Takes in what other machines have added; whether there was anything. Call [`live`](Self::live)
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`SessionBackend::refresh`]; the session is as it was.
    pub fn refresh(&mut self) -> Result<bool, SessionError> {
        let SessionStorage::Backend(keeper) = &mut self.store else { return Ok(false) };
        let contents = self.contents.load_all()?;
        let bytes = keeper.refresh()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        parse::append_bytes(contents, &bytes);
        Ok(true)
    }

    /// The lane that all machines share; `None` for a session that only this one can have.
    pub fn shared_lock(&self) -> Option<Arc<dyn SharedSessionLock>> {
        self.backend().map(SessionBackend::session_lock)
    }

    /// Where words wait for this session, if not in a file beside it.
    pub fn inbox(&self) -> Option<Arc<dyn InboxBackend>> {
        self.backend().map(SessionBackend::inbox)
    }

    fn backend(&self) -> Option<&dyn SessionBackend> {
        match &self.store {
            SessionStorage::Backend(keeper) => Some(&**keeper),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::File(_) => None,
        }
    }
}
