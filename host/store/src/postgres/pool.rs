//! A few connections, and statements that are repeated until they are answered.
//!
//! Every statement of this room may run twice: it says itself for which state it is meant. So when a
//! connection goes away between a statement and its answer, it is simply asked again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

use super::address::{DatabaseAddress, error_chain};

/// The pause before the first repetition; each further one takes twice as long, up to the last number.
const PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Attempts that fit into the time of one statement, where none of them is answered.
const ATTEMPTS: u32 = 3;

/// A statement's values, each with its type: so it takes one round trip, and no plan is kept for it.
pub(super) type StatementValues<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// Why a statement has no answer.
#[derive(Clone, Debug)]
pub(super) enum QueryError {
    /// The connection went away: nobody knows what became of it.
    Lost(String),
    /// The server said no.
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
            Some(code) if !is_transient(code) => QueryError::Refused(reason),
            _ => QueryError::Lost(reason),
        }
    }
}

/// What the server says when another attempt may do better.
fn is_transient(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
}

/// Connections to one database.
pub(super) struct ConnectionPool {
    address: DatabaseAddress,
    schema: String,
    timeout: Duration,
    places: Semaphore,
    idle: Mutex<Vec<PooledConnection>>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("place", &self.location())
            .field("schema", &self.schema)
            .finish()
    }
}

impl ConnectionPool {
    /// At most so many connections, made when they are wanted.
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
            places: Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)),
            idle: Mutex::default(),
        }
    }

    /// Host, port and database.
    pub(super) fn location(&self) -> String {
        self.address.location()
    }

    /// The answer to a statement, in which `@.` stands for the schema. Asked again until it is there or
    /// the time is over.
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

    /// A statement without an answer.
    pub(super) async fn run(
        &self,
        statement: &str,
        values: &StatementValues<'_>,
    ) -> Result<(), QueryError> {
        self.rows(statement, values).await.map(drop)
    }

    /// Attempts from now on.
    pub(super) fn retry(&self) -> QueryRetry {
        QueryRetry { until: Instant::now() + self.timeout, pause: PAUSE }
    }

    /// A connection. It is given back by dropping it, and given up where something is left open on it.
    pub(super) async fn acquire(&self) -> Result<ConnectionGuard<'_>, QueryError> {
        let waiting = tokio::time::timeout(self.timeout, self.places.acquire());
        let lost = || QueryError::Lost("all its connections are busy (store.connections)".into());
        let place = waiting.await.map_err(|_| lost())?.map_err(|_| lost())?;
        let idle = self.take_idle();
        let line = match idle {
            Some(line) => line,
            None => self.connect().await?,
        };
        Ok(ConnectionGuard { pool: self, line: Some(line), is_clean: true, _place: place })
    }

    fn take_idle(&self) -> Option<PooledConnection> {
        let mut idle = self.idle();
        idle.retain(|line| !line.client.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<PooledConnection, QueryError> {
        let connecting = tokio::time::timeout(self.attempt(), self.connect_once());
        connecting.await.map_err(|_| QueryError::Lost("it does not answer".into()))?
    }

    async fn connect_once(&self) -> Result<PooledConnection, QueryError> {
        let config = &self.address.config;
        let (client, driver) = match self.address.tls.clone() {
            Some(tls) => {
                let (client, connection) =
                    config.connect(tls).await.map_err(|e| QueryError::from_postgres(&e))?;
                (client, tokio::spawn(connection).abort_handle())
            }
            None => {
                let (client, connection) =
                    config.connect(NoTls).await.map_err(|e| QueryError::from_postgres(&e))?;
                (client, tokio::spawn(connection).abort_handle())
            }
        };
        let line = PooledConnection { client, driver };
        // A line that is answered for is on the server's disk. A statement that nobody waits for any
        // more does not go on for ever.
        let settings = format!(
            "select set_config('synchronous_commit', 'on', false) \
             where current_setting('synchronous_commit') = 'off'; \
             set statement_timeout = {}",
            self.timeout.as_millis()
        );
        line.client.batch_execute(&settings).await.map_err(|e| QueryError::from_postgres(&e))?;
        Ok(line)
    }

    fn attempt(&self) -> Duration {
        self.timeout / ATTEMPTS
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection.
#[derive(Debug)]
struct PooledConnection {
    client: Client,
    driver: AbortHandle,
}

impl Drop for PooledConnection {
    /// A connection that is stuck would otherwise wait for an answer that nobody wants.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct ConnectionGuard<'a> {
    pool: &'a ConnectionPool,
    line: Option<PooledConnection>,
    /// Whether nothing is under way on it.
    is_clean: bool,
    _place: SemaphorePermit<'a>,
}

impl ConnectionGuard<'_> {
    /// The answer to a statement, asked once.
    pub(super) async fn rows(
        &mut self,
        statement: &str,
        values: &StatementValues<'_>,
    ) -> Result<Vec<Row>, QueryError> {
        let mut rows = Vec::new();
        self.for_each_row(statement, values, |row| rows.push(row)).await?;
        Ok(rows)
    }

    /// Row by row: however many there are, only a pause between two of them counts as an answer that
    /// does not come.
    pub(super) async fn for_each_row(
        &mut self,
        statement: &str,
        values: &StatementValues<'_>,
        mut take: impl FnMut(Row),
    ) -> Result<(), QueryError> {
        let statement = statement.replace("@.", &format!("{}.", self.pool.schema));
        let attempt = self.pool.attempt();
        let client = &self.line.as_ref().ok_or_else(gone)?.client;
        self.is_clean = false;
        let values = values.iter().map(|(value, kind)| (*value, kind.clone()));
        let asking = in_time(attempt, client.query_typed_raw(&statement, values)).await?;
        let mut rows = std::pin::pin!(asking);
        while let Some(row) = in_time(attempt, rows.try_next()).await? {
            take(row);
        }
        self.is_clean = true;
        Ok(())
    }

    /// Statements without values or answers, such as `begin`.
    pub(super) async fn run_batch(&mut self, statements: &str) -> Result<(), QueryError> {
        let statements = statements.replace("@.", &format!("{}.", self.pool.schema));
        let attempt = self.pool.attempt();
        let client = &self.line.as_ref().ok_or_else(gone)?.client;
        self.is_clean = false;
        in_time(attempt, client.batch_execute(&statements)).await?;
        self.is_clean = true;
        Ok(())
    }

    /// Gives the connection up with whatever is open on it: the server rolls that back.
    pub(super) fn discard(mut self) {
        self.line = None;
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take().filter(|_| self.is_clean) {
            self.pool.idle().push(line);
        }
    }
}

fn gone() -> QueryError {
    QueryError::Lost("the connection was given up".into())
}

async fn in_time<T>(
    attempt: Duration,
    asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, QueryError> {
    match tokio::time::timeout(attempt, asking).await {
        Ok(answer) => answer.map_err(|error| QueryError::from_postgres(&error)),
        Err(_) => Err(QueryError::Lost("it does not answer".into())),
    }
}

/// Attempts until a time.
#[derive(Debug)]
pub(super) struct QueryRetry {
    until: Instant,
    pause: Duration,
}

impl QueryRetry {
    /// Whether there is time for another attempt; waits before it.
    pub(super) async fn wait_for_retry(&mut self, reason: &str) -> bool {
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        tracing::debug!(reason, "the store is asked again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
