//! Sessions in a backend, and moving sessions between storages.

use std::sync::Arc;

use super::backend::{InboxBackend, NewSession, SessionBackend, SharedSessionLock};
use super::contents::SessionContents;
use super::error::SessionError;
use super::{Session, SessionStorage, parse};

impl Session {
    /// A session in this backend, from all of its bytes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_backend(
        name: &str,
        bytes: &[u8],
        backend: Box<dyn SessionBackend>,
    ) -> Result<Session, SessionError> {
        let session = Session::from_contents(
            parse::parse_bytes(name, bytes)?,
            SessionStorage::Backend(backend),
        );
        session.check_writable()?;
        Ok(session)
    }

    /// Detaches the session from its storage; it stays in memory.
    #[must_use]
    pub fn into_memory(self) -> Session {
        Session { store: SessionStorage::Memory, ..self }
    }

    /// Makes the session read-only; appending fails.
    #[must_use]
    pub fn into_read_only(self) -> Session {
        Session { store: SessionStorage::ReadOnly, ..self }
    }

    /// Moves the session to the backend that `create` returns, migrated and without an incomplete last line.
    ///
    /// # Errors
    ///
    /// As `create`.
    pub fn into_backend(
        mut self,
        create: impl FnOnce(&NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError>,
    ) -> Result<Session, SessionError> {
        let contents = self.contents.load_all()?;
        // Other machines append rows after the last line, so it has to be complete.
        contents.normalize();
        let (id, cwd) = (contents.header.id(), contents.header.cwd());
        let backend = create(&NewSession { id, cwd, bytes: &contents.to_bytes() })?;
        Ok(Session { store: SessionStorage::Backend(backend), ..self })
    }

    /// Its bytes as [`into_backend`](Self::into_backend) would store them.
    pub fn normalized_bytes(&self) -> Vec<u8> {
        // Of a copy: comparing a session with a stored one must not change it.
        let mut contents = SessionContents::clone(&self.contents);
        contents.normalize();
        contents.to_bytes()
    }

    /// Moves the session to the backend of another one, if that has one.
    ///
    /// # Errors
    ///
    /// As [`SessionBackend::create`].
    pub fn into_backend_of(self, other: &Session) -> Result<Session, SessionError> {
        match other.backend() {
            Some(backend) => self.into_backend(|session| backend.create(session)),
            None => Ok(self),
        }
    }

    /// Reads what other machines appended; returns whether there was anything. Call [`live`](Self::live)
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`SessionBackend::refresh`]; the session is unchanged.
    pub fn refresh(&mut self) -> Result<bool, SessionError> {
        let SessionStorage::Backend(backend) = &mut self.store else { return Ok(false) };
        let contents = self.contents.load_all()?;
        let bytes = backend.refresh()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        parse::append_bytes(contents, &bytes);
        Ok(true)
    }

    /// The lock shared by all machines; `None` for a session without a backend.
    pub fn shared_lock(&self) -> Option<Arc<dyn SharedSessionLock>> {
        self.backend().map(SessionBackend::session_lock)
    }

    /// The queued messages in the backend; `None` for a session without one.
    pub fn inbox(&self) -> Option<Arc<dyn InboxBackend>> {
        self.backend().map(SessionBackend::inbox)
    }

    fn backend(&self) -> Option<&dyn SessionBackend> {
        match &self.store {
            SessionStorage::Backend(backend) => Some(&**backend),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::File(_) => None,
        }
    }
}
