//! Sessions in a PostgreSQL database, shared by several machines.
//!
//! A session is leased to one machine at a time (`lease`). Every write is one statement that checks the fencing
//! token and the line number against the session's row, so a late write of a machine that lost its lease has no
//! effect.

mod address;
mod core;
mod database_thread;
mod engine_stores;
mod entries;
mod heartbeat;
mod inbox;
mod lease;
mod pool;
mod schema;
mod session_backend;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_postgres::types::Type;

use self::core::{PostgresCore, store_error};
use super::error::StoreOpenError;
use super::settings::StoreSettings;
use super::{SessionStore, StoredSession};
use ctxhost_engine::EngineStores;
use ctxhost_session::{Session, SessionError};
use engine_stores::PostgresEngineStores;
use lease::SessionHandle;
use session_backend::PostgresBackend;

pub use schema::migrate;

/// Sessions in a PostgreSQL database. Clones share one store.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    core: Arc<PostgresCore>,
}

impl PostgresStore {
    /// Connects and checks the version of the tables.
    ///
    /// # Errors
    ///
    /// [`StoreOpenError`].
    pub fn open(settings: &StoreSettings) -> Result<PostgresStore, StoreOpenError> {
        Ok(PostgresStore { core: Arc::new(PostgresCore::open(settings)?) })
    }

    /// The name under which this process holds leases: host, process id and a random number.
    pub fn name(&self) -> &str {
        &self.core.name
    }
}

impl SessionStore for PostgresStore {
    fn insert(&self, session: Session) -> Result<Session, SessionError> {
        session.into_backend(|new| session_backend::create(&self.core, new))
    }

    fn open(&self, id: &str) -> Result<Session, SessionError> {
        let lines = self.core.read_session(id)?;
        let handle = SessionHandle::new(&self.core, id, lines.next_seq);
        Session::from_backend(id, &lines.bytes, Box::new(PostgresBackend::new(handle)))
    }

    fn read(&self, id: &str) -> Result<Session, SessionError> {
        Ok(Session::parse(id, &self.core.read_session(id)?.bytes)?.into_read_only())
    }

    fn list(&self, cwd: Option<&Path>) -> Result<Vec<StoredSession>, SessionError> {
        let folder = cwd.map(|cwd| std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned()));
        let folder: Option<PathBuf> = folder.map(|folder| folder.components().collect());
        let cwd = folder.as_ref().map(|folder| folder.display().to_string());
        // This column has no bytes that are not UTF-8, so the header decides where names may differ in them.
        let unsure = folder.filter(|folder| {
            folder.to_str().is_none_or(|name| name.contains(char::REPLACEMENT_CHARACTER))
        });
        let pool = self.core.pool.clone();
        let rows = self.core.query(async move {
            let statement = "select id, cwd, (extract(epoch from changed_at) * 1000)::bigint \
                             from @.sessions where $1::text is null or cwd = $1 \
                             order by changed_at desc, id desc";
            pool.rows(statement, &[(&cwd, Type::TEXT)]).await
        });
        let session = |row: &tokio_postgres::Row| StoredSession {
            id: row.get(0),
            cwd: row.get(1),
            changed_ms: row.get(2),
        };
        let rows = rows.map_err(store_error("list sessions"))?;
        let is_listed = |session: &StoredSession| {
            let is_of =
                |folder: &PathBuf| self.read(&session.id).is_ok_and(|it| it.header().is_of(folder));
            unsure.as_ref().is_none_or(is_of)
        };
        Ok(rows.iter().map(session).filter(is_listed).collect())
    }

    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>> {
        Some(Arc::new(PostgresEngineStores::new(&self.core)))
    }
}
