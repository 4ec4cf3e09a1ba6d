//! Stores of sessions and engine values: local files, or a database shared by several machines.

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

/// A store of sessions.
pub trait SessionStore: Debug + Send + Sync {
    /// Moves a session from memory into the store.
    ///
    /// # Errors
    ///
    /// [`SessionError::AlreadyExists`], or if it cannot be written.
    fn insert(&self, session: Session) -> Result<Session, SessionError>;

    /// Opens a session for writing.
    ///
    /// # Errors
    ///
    /// [`SessionError::NotFound`], or as [`Session::open`].
    fn open(&self, id: &str) -> Result<Session, SessionError>;

    /// Reads a session; appending to it fails.
    ///
    /// # Errors
    ///
    /// [`SessionError::NotFound`], or as [`Session::read`].
    fn read(&self, id: &str) -> Result<Session, SessionError>;

    /// The sessions of a working folder, or all sessions, most recently changed first.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    fn list(&self, cwd: Option<&Path>) -> Result<Vec<StoredSession>, SessionError>;

    /// The engine stores; `None` if they are local files.
    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>>;

    /// Creates a session.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    fn create(&self, header: SessionHeader) -> Result<Session, SessionError> {
        self.insert(Session::in_memory(header))
    }
}

/// A session in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// Its id.
    pub id: String,
    /// Its working folder.
    pub cwd: String,
    /// When it was last changed, in milliseconds since 1970.
    pub changed_ms: i64,
}

/// Opens the configured store; `files` is the folder of local sessions.
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

/// Fails, because this program was built without PostgreSQL.
///
/// # Errors
///
/// [`StoreOpenError::NotBuilt`].
#[cfg(not(feature = "postgres"))]
pub fn migrate(_settings: &StoreSettings) -> Result<(i32, i32), StoreOpenError> {
    Err(StoreOpenError::NotBuilt)
}
