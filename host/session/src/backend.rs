//! Interface of session storage other than files, such as a database shared by several machines.
//!
//! ```text
//!  machine A   acquire ─► refresh ─► append ─► append ─► release
//!  machine B      acquire ·········· waits ··············· ─► refresh ─► append ─► release
//! ```
//!
//! A backend leases a session to one machine at a time. Appends of a machine whose lease was taken over are
//! rejected, however late they arrive.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::SessionError;

/// Storage of one session that is open for writing.
pub trait SessionBackend: Debug + Send + Sync {
    /// Stores lines, given without line breaks, all or none of them. They are durable when this returns.
    ///
    /// # Errors
    ///
    /// Nothing is stored then, except with [`SessionError::OutcomeUnknown`].
    fn append(&mut self, lines: &[&str]) -> Result<(), SessionError>;

    /// The lines that other machines appended since the last call or append, as bytes.
    ///
    /// # Errors
    ///
    /// If they cannot be read; a later call returns them.
    fn refresh(&mut self) -> Result<Vec<u8>, SessionError>;

    /// Creates a session in the same store.
    ///
    /// # Errors
    ///
    /// If it exists or cannot be written.
    fn create(&self, session: &NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError>;

    /// The lock shared by all machines.
    fn session_lock(&self) -> Arc<dyn SharedSessionLock>;

    /// The queued messages of the session.
    fn inbox(&self) -> Arc<dyn InboxBackend>;
}

/// A session to be created in a [`SessionBackend`].
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its working folder.
    pub cwd: &'a str,
    /// All its lines, each with its line break.
    pub bytes: &'a [u8],
}

/// The lock of a session across machines.
pub trait SharedSessionLock: Debug + Send + Sync {
    /// Waits for the lease. Lines of other machines are available to [`SessionBackend::refresh`] then.
    ///
    /// Dropping the future leaves the queue.
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn SessionLease>, SessionError>>;
}

/// The right of one machine to write a session, released when it is dropped.
pub trait SessionLease: Debug + Send + Sync {}

/// The queued messages of a session, from all machines.
pub trait InboxBackend: Debug + Send + Sync {
    /// Stores a message, which is durable when this returns. A known id changes nothing.
    ///
    /// # Errors
    ///
    /// The message is not stored then.
    fn store(&self, message: &StoredInboxMessage) -> Result<(), SessionError>;

    /// Takes the messages that no other live machine will deliver, oldest first.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn claim(&self) -> Result<Vec<StoredInboxMessage>, SessionError>;

    /// Removes messages that are in the session.
    ///
    /// # Errors
    ///
    /// If they cannot be removed; a later call tries again.
    fn remove(&self, ids: &[String]) -> Result<(), SessionError>;
}

/// A queued message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInboxMessage {
    /// Its id.
    pub id: String,
    /// The message, as JSON.
    pub message: String,
}
