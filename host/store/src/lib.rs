//! Where sessions and what engines keep stand for good: files of this machine, or a database that many
//! machines share. What a session says is no matter of this room.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod error;
mod files;
mod migration;
#[cfg(feature = "postgres")]
mod postgres;
mod settings;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use ctxhost_engine::EngineStores;
use ctxhost_session::{Header, Session, SessionError};

pub use error::OpenError;
pub use files::FileSessions;
pub use migration::{Copied, copy_sessions};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresStore, migrate};
pub use settings::{SslMode, StoreKind, StoreSettings};

/// A place that keeps sessions.
pub trait SessionStore: Debug + Send + Sync {
    /// Keeps a session that is in memory, under its id.
    ///
    /// # Errors
    ///
    /// [`SessionError::Taken`], or where it cannot be written.
    fn keep(&self, session: Session) -> Result<Session, SessionError>;

    /// Opens a session for writing.
    ///
    /// # Errors
    ///
    /// [`SessionError::Missing`], or as [`Session::open`].
    fn open(&self, id: &str) -> Result<Session, SessionError>;

    /// Reads a session; appending to it is refused.
    ///
    /// # Errors
    ///
    /// [`SessionError::Missing`], or as [`Session::read`].
    fn read(&self, id: &str) -> Result<Session, SessionError>;

    /// The sessions of a working folder, or all of them, the one that was written to last first.
    ///
    /// # Errors
    ///
    /// Where the store does not answer.
    fn list(&self, cwd: Option<&Path>) -> Result<Vec<KeptSession>, SessionError>;

    /// Where engines keep values; `None` where that is a folder of the machine, whichever session they
    /// come from.
    fn engines(&self) -> Option<Arc<dyn EngineStores>>;

    /// Begins a session.
    ///
    /// # Errors
    ///
    /// As [`keep`](Self::keep).
    fn create(&self, header: Header) -> Result<Session, SessionError> {
        self.keep(Session::in_memory(header))
    }
}

/// A session that a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSession {
    /// Its id.
    pub id: String,
    /// Its working folder.
    pub cwd: String,
    /// When it was last written to, in milliseconds since 1970.
    pub changed_ms: i64,
}

/// The store that the settings name; `files` is the folder of sessions on this machine.
///
/// # Errors
///
/// [`OpenError`].
pub fn open(settings: &StoreSettings, files: &Path) -> Result<Arc<dyn SessionStore>, OpenError> {
    Ok(match settings.kind {
        StoreKind::Files => Arc::new(FileSessions::below(files)),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => Arc::new(PostgresStore::open(settings)?),
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => return Err(OpenError::NotBuilt),
    })
}

/// Refuses: this program was built without PostgreSQL.
///
/// # Errors
///
/// [`OpenError::NotBuilt`].
#[cfg(not(feature = "postgres"))]
pub fn migrate(_settings: &StoreSettings) -> Result<(i32, i32), OpenError> {
    Err(OpenError::NotBuilt)
}
