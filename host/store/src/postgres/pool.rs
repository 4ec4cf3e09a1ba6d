//! A connection pool that repeats statements after lost connections.
//!
//! Every statement of this store is idempotent: its conditions name the expected state. So a statement whose
//! reply was lost can be repeated.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};
use tokio_util::task::AbortOnDropHandle;

use super::address::{DatabaseAddress, error_chain};

/// The pause before the first repetition, which doubles up to the maximum.
const PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// Number of unanswered attempts within `store.timeout_ms`.
const ATTEMPTS: u32 = 3;

/// The values of a statement with their types, so that it needs one round trip and no prepared plan.
pub(super) type StatementValues<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// Why a statement failed.
#[derive(Clone, Debug)]
pub(super) enum QueryError {
    /// The connection was lost, so the outcome is unknown.
    Lost(String),
    /// The server rejected the statement.
    Refused(String),
}

impl QueryError {
    pub(super) fn into_reason(self) -> String {
        match self {
            QueryError::Lost(reason) | QueryError::Refused(reason) => reason,
        }
    }

    fn from_postgres(error: &tokio_postgres::Error) -> QueryError {
        let reason = error_chain(error);
        match error.code() {
            // An error without a code never came from the server: the connection is gone.
            Some(code) if !is_transient(code) => QueryError::Refused(reason),
            _ => QueryError::Lost(reason),
        }
    }
}

/// Whether another attempt may succeed.
fn is_transient(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        // Reported by `statement_timeout`.
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        // During a failover, a connection may still be to the old primary, now a standby.
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
}

/// Connections to one database.
pub(super) struct ConnectionPool {
    address: DatabaseAddress,
    schema: String,
    timeout: Duration,
    permits: Semaphore,
    idle: Mutex<Vec<PooledConnection>>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("location", &self.location())
            .field("schema", &self.schema)
            .finish()
    }
}

impl ConnectionPool {
    /// A pool of at most `connections` connections, opened on demand.
    pub(super) fn new(
        address: &DatabaseAddress,
        schema: &str,
        timeout_ms: u64,
        connections: usize,
    ) -> ConnectionPool {
        ConnectionPool {
            address: address.clone(),
            schema: schema.to_owned(),
            timeout: Duration::from_millis(timeout_ms.max(1)),
            permits: Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
        }
    }

    /// Host, port and database.
    pub(super) fn location(&self) -> String {
        self.address.location()
    }

    /// Runs a statement, in which `@.` is replaced by the schema, and returns its rows. Repeats it after lost
    /// connections until the timeout.
    pub(super) async fn rows(
        &self,
        statement: &str,
        values: &StatementValues<'_>,
    ) -> Result<Vec<Row>, QueryError> {
        let mut retry = self.retry();
        loop {
            let attempt = async { self.acquire().await?.rows(statement, values).await };
            match attempt.await {
                Err(QueryError::Lost(reason)) if retry.wait_for_retry(&reason).await => {}
                answer => return answer,
            }
        }
    }

    /// Runs a statement without result rows.
    pub(super) async fn run(
        &self,
        statement: &str,
        values: &StatementValues<'_>,
    ) -> Result<(), QueryError> {
        self.rows(statement, values).await.map(drop)
    }

    /// Starts a sequence of attempts.
    pub(super) fn retry(&self) -> QueryRetry {
        QueryRetry { until: Instant::now() + self.timeout, pause: PAUSE }
    }

    /// Takes a connection. Dropping it returns it to the pool, or closes it if a statement is unfinished.
    pub(super) async fn acquire(&self) -> Result<ConnectionGuard<'_>, QueryError> {
        let waiting = tokio::time::timeout(self.timeout, self.permits.acquire());
        let lost = || QueryError::Lost("all connections are busy (store.connections)".into());
        let permit = waiting.await.map_err(|_| lost())?.map_err(|_| lost())?;
        let idle = self.take_idle();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(ConnectionGuard {
            pool: self,
            connection: Some(connection),
            is_clean: true,
            _permit: permit,
        })
    }

    fn take_idle(&self) -> Option<PooledConnection> {
        let mut idle = self.idle.lock();
        // The server closes idle connections; a request should not be the one to find out.
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<PooledConnection, QueryError> {
        let connecting = tokio::time::timeout(self.attempt(), self.connect_once());
        connecting
            .await
            .map_err(|_| QueryError::Lost("no reply in time (store.timeout_ms)".into()))?
    }

    async fn connect_once(&self) -> Result<PooledConnection, QueryError> {
        let config = &self.address.config;
        let (client, driver) = match self.address.tls.clone() {
            Some(tls) => {
                let (client, connection) =
                    config.connect(tls).await.map_err(|error| QueryError::from_postgres(&error))?;
                (client, tokio::spawn(connection))
            }
            None => {
                let (client, connection) = config
                    .connect(NoTls)
                    .await
                    .map_err(|error| QueryError::from_postgres(&error))?;
                (client, tokio::spawn(connection))
            }
        };
        let _driver = AbortOnDropHandle::new(driver);
        let connection = PooledConnection { client, _driver };
        // Acknowledged lines must be on the server's disk. And a statement whose client is gone must not run
        // forever.
        // Only `off` is changed: `local` and the stricter values are the operator's choice.
        let settings = format!(
            "select set_config('synchronous_commit', 'on', false) \
             where current_setting('synchronous_commit') = 'off'; \
             set statement_timeout = {}",
            self.timeout.as_millis()
        );
        connection
            .client
            .batch_execute(&settings)
            .await
            .map_err(|error| QueryError::from_postgres(&error))?;
        Ok(connection)
    }

    fn attempt(&self) -> Duration {
        self.timeout / ATTEMPTS
    }
}

/// One connection.
#[derive(Debug)]
struct PooledConnection {
    client: Client,
    /// Aborted with the connection: it would wait on a stalled one forever.
    _driver: AbortOnDropHandle<Result<(), tokio_postgres::Error>>,
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct ConnectionGuard<'a> {
    pool: &'a ConnectionPool,
    connection: Option<PooledConnection>,
    /// Whether no statement is unfinished.
    is_clean: bool,
    _permit: SemaphorePermit<'a>,
}

impl ConnectionGuard<'_> {
    /// Runs a statement once and returns its rows.
    pub(super) async fn rows(
        &mut self,
        statement: &str,
        values: &StatementValues<'_>,
    ) -> Result<Vec<Row>, QueryError> {
        let mut rows = Vec::new();
        self.for_each_row(statement, values, |row| rows.push(row)).await?;
        Ok(rows)
    }

    /// Runs a statement once, row by row. The timeout applies to each row, so that a large result does not
    /// exceed it.
    pub(super) async fn for_each_row(
        &mut self,
        statement: &str,
        values: &StatementValues<'_>,
        mut handle_row: impl FnMut(Row),
    ) -> Result<(), QueryError> {
        let statement = statement.replace("@.", &format!("{}.", self.pool.schema));
        let attempt = self.pool.attempt();
        let client = &self.connection.as_ref().ok_or_else(closed)?.client;
        // If this future is dropped at an await, the reply of the statement is still to come.
        self.is_clean = false;
        let values = values.iter().map(|(value, kind)| (*value, kind.clone()));
        let asking = in_time(attempt, client.query_typed_raw(&statement, values)).await?;
        let mut rows = std::pin::pin!(asking);
        while let Some(row) = in_time(attempt, rows.try_next()).await? {
            handle_row(row);
        }
        self.is_clean = true;
        Ok(())
    }

    /// Runs statements without values or rows, such as `begin`.
    pub(super) async fn run_batch(&mut self, statements: &str) -> Result<(), QueryError> {
        let statements = statements.replace("@.", &format!("{}.", self.pool.schema));
        let attempt = self.pool.attempt();
        let client = &self.connection.as_ref().ok_or_else(closed)?.client;
        self.is_clean = false;
        in_time(attempt, client.batch_execute(&statements)).await?;
        self.is_clean = true;
        Ok(())
    }

    /// Closes the connection; the server rolls back an open transaction.
    pub(super) fn discard(mut self) {
        self.connection = None;
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.is_clean) {
            self.pool.idle.lock().push(connection);
        }
    }
}

fn closed() -> QueryError {
    QueryError::Lost("the connection was closed".into())
}

async fn in_time<T>(
    attempt: Duration,
    asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, QueryError> {
    match tokio::time::timeout(attempt, asking).await {
        Ok(answer) => answer.map_err(|error| QueryError::from_postgres(&error)),
        Err(_) => Err(QueryError::Lost("no reply in time (store.timeout_ms)".into())),
    }
}

/// A sequence of attempts with a time limit.
#[derive(Debug)]
pub(super) struct QueryRetry {
    until: Instant,
    pause: Duration,
}

impl QueryRetry {
    /// Waits before another attempt; `false` if there is no time for one.
    pub(super) async fn wait_for_retry(&mut self, reason: &str) -> bool {
        // A pause that ends after the limit would only delay the error.
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        tracing::debug!(reason, "repeating a statement after a lost connection");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}
