//! Sessions in a PostgreSQL database, for many gateways on many machines.
//!
//! A session is given to one machine at a time: `lease` is how, and `schema/` says where it stands. The
//! rest of this room follows from one rule: whatever is written is one statement that holds the fence and
//! the number of the line against the session's row, so a machine that lost a session can wake up as
//! late as it likes.

mod address;
mod database_thread;
mod engine_stores;
mod entries;
mod heartbeat;
mod inbox;
mod lease;
mod pool;
mod schema;
mod session_backend;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::types::Type;

use super::error::StoreOpenError;
use super::settings::StoreSettings;
use super::{SessionStore, StoredSession};
use address::DatabaseAddress;
use ctxhost_engine::EngineStores;
use ctxhost_session::{NewSession, Session, SessionBackend, SessionError};
use database_thread::DatabaseThread;
use engine_stores::PostgresEngineStores;
use heartbeat::LeaseHeartbeat;
use lease::SessionHandle;
use pool::{ConnectionPool, QueryError};
use session_backend::PostgresBackend;

pub use schema::migrate;

/// Sessions in a PostgreSQL database. Clones are the same.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    core: Arc<PostgresCore>,
}

/// What all open sessions of a store share.
#[derive(Debug)]
struct PostgresCore {
    pool: Arc<ConnectionPool>,
    beat: Arc<LeaseHeartbeat>,
    /// Who this is, for other machines.
    name: String,
    /// Sessions opened so far, so that each has a name of its own.
    opened: AtomicU64,
    lease_ms: u64,
    wait_ms: u64,
    /// Last, so that what the others leave behind is still done.
    link: DatabaseThread,
}

impl PostgresStore {
    /// Connects, and looks whether the tables are there.
    ///
    /// # Errors
    ///
    /// [`StoreOpenError`].
    pub fn open(settings: &StoreSettings) -> Result<PostgresStore, StoreOpenError> {
        schema::check_name(&settings.schema)?;
        let address = DatabaseAddress::from_settings(settings)?;
        let (schema, timeout_ms) = (settings.schema.clone(), settings.timeout_ms);
        let link = DatabaseThread::start().map_err(|source| StoreOpenError::Thread { source })?;
        let pool =
            Arc::new(ConnectionPool::new(&address, &schema, timeout_ms, settings.connections));
        // Renewals do not wait behind statements.
        let heart = ConnectionPool::new(&address, &schema, timeout_ms, 1);
        let checked = {
            let pool = pool.clone();
            link.block_on(async move { schema::check(&pool, &schema).await })
        };
        let gone =
            || StoreOpenError::Unreachable { place: address.location(), reason: "it ended".into() };
        checked.unwrap_or_else(|| Err(gone()))?;
        let lease_ms = settings.lease_ms;
        let beat = Arc::new(LeaseHeartbeat::default());
        link.spawn(heartbeat::renew(Arc::downgrade(&beat), heart, lease_ms));
        let (name, opened) = (name_of_this_process(), AtomicU64::new(0));
        let wait_ms = settings.wait_ms;
        Ok(PostgresStore {
            core: Arc::new(PostgresCore { pool, beat, name, opened, lease_ms, wait_ms, link }),
        })
    }

    /// What other machines see as the holder of a session: host, process and a number by chance.
    pub fn name(&self) -> &str {
        &self.core.name
    }
}

impl SessionStore for PostgresStore {
    fn insert(&self, session: Session) -> Result<Session, SessionError> {
        session.into_backend(|founding| self.core.insert(founding))
    }

    fn open(&self, id: &str) -> Result<Session, SessionError> {
        let lines = self.core.read_session(id)?;
        let place = SessionHandle::new(&self.core, id, lines.next_seq);
        Session::from_backend(id, &lines.bytes, Box::new(PostgresBackend::new(place)))
    }

    fn read(&self, id: &str) -> Result<Session, SessionError> {
        Ok(Session::parse(id, &self.core.read_session(id)?.bytes)?.into_read_only())
    }

    fn list(&self, cwd: Option<&Path>) -> Result<Vec<StoredSession>, SessionError> {
        let cwd = cwd.map(|cwd| std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned()));
        let cwd = cwd.map(|cwd| cwd.display().to_string());
        let pool = self.core.pool.clone();
        let asked = self.core.link.block_on(async move {
            let statement = "select id, cwd, (extract(epoch from changed_at) * 1000)::bigint \
                             from @.sessions where $1::text is null or cwd = $1 \
                             order by changed_at desc, id desc";
            pool.rows(statement, &[(&cwd, Type::TEXT)]).await
        });
        let rows = self.core.require_answer(asked).map_err(store_error("list sessions"))?;
        let kept = |row: &tokio_postgres::Row| StoredSession {
            id: row.get(0),
            cwd: row.get(1),
            changed_ms: row.get(2),
        };
        Ok(rows.iter().map(kept).collect())
    }

    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>> {
        Some(Arc::new(PostgresEngineStores::new(&self.core)))
    }
}

impl PostgresCore {
    fn insert(
        self: &Arc<Self>,
        founding: &NewSession<'_>,
    ) -> Result<Box<dyn SessionBackend>, SessionError> {
        let next_seq = self.insert_session(founding)?;
        Ok(Box::new(PostgresBackend::new(SessionHandle::new(self, founding.id, next_seq))))
    }

    /// A name of its own for each session that is opened.
    fn new_handle_name(&self) -> String {
        format!("{}/{}", self.name, self.opened.fetch_add(1, Ordering::Relaxed))
    }

    fn require_answer<T>(&self, answer: Option<Result<T, QueryError>>) -> Result<T, QueryError> {
        answer.unwrap_or_else(|| Err(QueryError::Lost("it is closed".into())))
    }
}

/// An error about the store, from what it said.
fn store_error(action: impl Into<String>) -> impl FnOnce(QueryError) -> SessionError {
    let action = action.into();
    move |trouble| SessionError::Store { action, reason: trouble.into_reason() }
}

fn name_of_this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown-host",
        host => host,
    };
    let chance = RandomState::new().build_hasher().finish();
    // The slash parts a holder's name from its numbers.
    format!("{}.{}.{:08x}", host.replace('/', "-"), std::process::id(), chance >> 32)
}
