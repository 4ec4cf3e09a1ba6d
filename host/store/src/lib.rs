//! Where sessions and what engines keep stand for good: files of this machine, or a database that many
//! machines share. What a session says is no matter of this room.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod copy;
mod error;
mod files;
#[cfg(feature = "postgres")]
mod postgres;
mod settings;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use ctxhost_engine::EngineStores;
use ctxhost_session::{Session, SessionError, SessionHeader};

pub use copy::{CopyReport, copy_sessions};
pub use error::StoreOpenError;
pub use files::FileSessionStore;
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
    fn insert(&self, session: Session) -> Result<Session, SessionError>;

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
    fn list(&self, cwd: Option<&Path>) -> Result<Vec<StoredSession>, SessionError>;

    /// Where engines keep values; `None` where that is a folder of the machine, whichever session they
    /// come from.
    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>>;

    /// Begins a session.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::keep).
    fn create(&self, header: SessionHeader) -> Result<Session, SessionError> {
        self.insert(Session::in_memory(header))
    }
}

/// A session that a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
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
/// [`StoreOpenError`].
pub fn open(
    settings: &StoreSettings,
    files: &Path,
) -> Result<Arc<dyn SessionStore>, StoreOpenError> {
    Ok(match settings.kind {
        StoreKind::Files => Arc::new(FileSessionStore::new(files)),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres => Arc::new(PostgresStore::open(settings)?),
        #[cfg(not(feature = "postgres"))]
        StoreKind::Postgres => return Err(StoreOpenError::NotBuilt),
    })
}

/// Refuses: this program was built without PostgreSQL.
///
/// # Errors
///
/// [`StoreOpenError::NotBuilt`].
#[cfg(not(feature = "postgres"))]
pub fn migrate(_settings: &StoreSettings) -> Result<(i32, i32), StoreOpenError> {
    Err(StoreOpenError::NotBuilt)
}
