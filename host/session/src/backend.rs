//! What a session needs of a place that is no file, such as a database that several machines share.
//!
//! ```text
//!  machine A   enter ─► catch up ─► append ─► append ─► leave
//!  machine B      enter ·········· waits ·············· ─► catch up ─► append ─► leave
//! ```
//!
//! A place for many machines gives the session to one of them at a time. Whoever has entered may append;
//! whoever lost it meanwhile is refused, however late its line arrives.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::SessionError;

/// Where one session is kept, open for writing.
pub trait SessionBackend: Debug + Send + Sync {
    /// Keeps more lines, given without their line breaks, all of them or none; they are kept for good when
    /// this returns.
    ///
    /// # Errors
    ///
    /// Nothing is kept then, except where the error says that nobody knows.
    fn append(&mut self, lines: &[&str]) -> Result<(), SessionError>;

    /// The bytes that others have added since this keeper last knew all of them.
    ///
    /// # Errors
    ///
    /// Where they cannot be read; they are handed out by a later call then.
    fn refresh(&mut self) -> Result<Vec<u8>, SessionError>;

    /// Keeps a new session in the same place.
    ///
    /// # Errors
    ///
    /// Where it is there already or cannot be written.
    fn create(&self, founding: &NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError>;

    /// The lane that all machines share.
    fn session_lock(&self) -> Arc<dyn SharedSessionLock>;

    /// What was said to the session and waits.
    fn inbox(&self) -> Arc<dyn InboxBackend>;
}

/// A new session for a [`SessionBackend`].
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its working folder.
    pub cwd: &'a str,
    /// All its lines, each with its line break.
    pub bytes: &'a [u8],
}

/// The lane of a session across machines.
pub trait SharedSessionLock: Debug + Send + Sync {
    /// Waits until no other machine has the session. What others wrote is ready for
    /// [`SessionBackend::refresh`] then.
    ///
    /// Dropping the future gives the place in the queue up.
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn SessionLease>, SessionError>>;
}

/// The right of one machine to write a session. Dropping it lets the next one in.
pub trait SessionLease: Debug + Send + Sync {}

/// The messages that wait for a session, on whatever machine they came in.
pub trait InboxBackend: Debug + Send + Sync {
    /// Keeps a letter; it is kept for good when this returns. The same id again changes nothing.
    ///
    /// # Errors
    ///
    /// It is not kept then.
    fn store(&self, letter: &StoredInboxMessage) -> Result<(), SessionError>;

    /// The letters that nobody else is about to deliver, oldest first: this machine's, and those of
    /// machines that are gone.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    fn claim(&self) -> Result<Vec<StoredInboxMessage>, SessionError>;

    /// Forgets letters once they are in the session.
    ///
    /// # Errors
    ///
    /// Where they could not be forgotten; a later call tries again.
    fn remove(&self, ids: &[String]) -> Result<(), SessionError>;
}

/// A letter as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInboxMessage {
    /// Its id.
    pub id: String,
    /// The message, as JSON.
    pub message: String,
}
