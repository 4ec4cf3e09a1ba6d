//! State shared by all open sessions of a PostgreSQL store.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::DatabaseAddress;
use super::database_thread::DatabaseThread;
use super::heartbeat::{self, LeaseHeartbeat};
use super::pool::{ConnectionPool, QueryError};
use super::schema;
use crate::error::StoreOpenError;
use crate::settings::StoreSettings;
use ctxhost_session::SessionError;

#[derive(Debug)]
pub(super) struct PostgresCore {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) heartbeat: Arc<LeaseHeartbeat>,
    /// The name of this process in the database.
    pub(super) name: String,
    /// Number of handle names given out.
    handles: AtomicU64,
    pub(super) lease_ms: u64,
    pub(super) wait_ms: u64,
    /// The last field, so that it is dropped last and completes the deferred work of the others.
    pub(super) thread: DatabaseThread,
}

impl PostgresCore {
    /// Connects and checks the version of the tables.
    pub(super) fn open(settings: &StoreSettings) -> Result<PostgresCore, StoreOpenError> {
        // The name becomes part of statements, where a parameter is not possible.
        schema::check_name(&settings.schema)?;
        let address = DatabaseAddress::from_settings(settings)?;
        let (schema, timeout_ms) = (settings.schema.clone(), settings.timeout_ms);
        let thread = DatabaseThread::start().map_err(|source| StoreOpenError::Thread { source })?;
        let pool =
            Arc::new(ConnectionPool::new(&address, &schema, timeout_ms, settings.connections));
        // Its own connection: a renewal that waits for a busy pool could lose the lease.
        let renewal_pool = ConnectionPool::new(&address, &schema, timeout_ms, 1);
        let checked = {
            let pool = pool.clone();
            thread.block_on(async move { schema::check(&pool, &schema).await })
        };
        let ended = || StoreOpenError::Unreachable {
            place: address.location(),
            reason: "the store thread ended".into(),
        };
        checked.unwrap_or_else(|| Err(ended()))?;
        let (lease_ms, wait_ms) = (settings.lease_ms, settings.wait_ms);
        let heartbeat = Arc::new(LeaseHeartbeat::default());
        // Weak, so that the renewal does not keep the store open.
        thread.spawn(heartbeat::renew(Arc::downgrade(&heartbeat), renewal_pool, lease_ms));
        let (name, handles) = (process_name(), AtomicU64::new(0));
        Ok(PostgresCore { pool, heartbeat, name, handles, lease_ms, wait_ms, thread })
    }

    /// A unique name for an opened session.
    pub(super) fn new_handle_name(&self) -> String {
        format!("{}/{}", self.name, self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs a query on the database thread and waits for it.
    pub(super) fn query<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, QueryError>> + Send + 'static,
    ) -> Result<T, QueryError> {
        let result = self.thread.block_on(work);
        result.unwrap_or_else(|| Err(QueryError::Lost("the store is closed".into())))
    }
}

/// Converts a query error to an error of the operation.
pub(super) fn store_error(action: impl Into<String>) -> impl FnOnce(QueryError) -> SessionError {
    let action = action.into();
    move |error| SessionError::Store { action, reason: error.into_reason() }
}

/// Host, process id and a random number.
fn process_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown-host",
        host => host,
    };
    let random = RandomState::new().build_hasher().finish();
    // A slash separates the process from handle and lease numbers.
    format!("{}.{}.{:08x}", host.replace('/', "-"), std::process::id(), random >> 32)
}
