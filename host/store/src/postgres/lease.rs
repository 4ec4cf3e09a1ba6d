//! Leases: a session is given to one machine at a time, with a fencing token.
//!
//! ```text
//!  sessions row   hold ──── lease, expires by the server's clock, renewed while the machine lives
//!                 fence ─── incremented with every lease; a line is accepted with the newest only
//!                 next_seq  number of the next line
//! ```
//!
//! Waiting machines queue in the database, so that none starves. A queue position expires after two seconds without
//! polling, a lease without renewal.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};

use super::core::{PostgresCore, store_error};
use super::entries::read_lines_from;
use super::pool::{ConnectionPool, QueryError};
use ctxhost_session::SessionError;
use ctxhost_session::backend::{SessionLease, SharedSessionLock};

/// The first polling interval of a waiting machine, which grows by half up to the maximum.
const POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(200);

/// How long a queue position survives without polling: ten of the longest intervals.
const QUEUE_MS: f64 = 2_000.0;

/// An opened session, shared by its backend, its lock and its inbox.
#[derive(Debug)]
pub(super) struct SessionHandle {
    pub(super) core: Arc<PostgresCore>,
    pub(super) id: String,
    /// The name of this handle in the database.
    pub(super) handle_name: String,
    state: Mutex<HandleState>,
}

#[derive(Debug)]
struct HandleState {
    /// Number of the next line, as far as this machine knows.
    next_seq: i64,
    /// Lines of other machines that were read but not taken.
    new_lines: Vec<u8>,
    token: Option<FencingToken>,
    /// Number of leases requested so far.
    leases: u64,
}

/// What an append needs to be accepted.
#[derive(Clone, Debug)]
pub(super) struct FencingToken {
    pub(super) lease_name: String,
    pub(super) fence: i64,
    pub(super) next_seq: i64,
}

impl SessionHandle {
    /// A session whose lines before `next_seq` are known.
    pub(super) fn new(core: &Arc<PostgresCore>, id: &str, next_seq: i64) -> Arc<SessionHandle> {
        let state = HandleState { next_seq, new_lines: Vec::new(), token: None, leases: 0 };
        let handle_name = core.new_handle_name();
        let (core, id, state) = (core.clone(), id.to_owned(), Mutex::new(state));
        Arc::new(SessionHandle { core, id, handle_name, state })
    }

    /// The token of the current lease.
    pub(super) fn token(&self) -> Option<FencingToken> {
        let state = self.state.lock();
        state.token.clone().map(|token| FencingToken { next_seq: state.next_seq, ..token })
    }

    /// Takes the lines of other machines that were read.
    pub(super) fn take_new_lines(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().new_lines)
    }

    /// Whether lines of other machines were read but not taken.
    pub(super) fn has_new_lines(&self) -> bool {
        !self.state.lock().new_lines.is_empty()
    }

    /// Counts lines that were appended.
    pub(super) fn advance(&self, lines: i64) {
        self.state.lock().next_seq += lines;
    }

    /// Waits for the lease and reads the lines that other machines appended.
    pub(super) async fn acquire(self: Arc<Self>) -> Result<Box<PostgresLease>, SessionError> {
        let lease = Box::new(PostgresLease::new(&self));
        let token = self.wait_for(&lease.name).await?;
        let known = self.state.lock().next_seq;
        // Another machine continued the session since this handle read it.
        if token.next_seq > known {
            let read = read_lines_from(&self.core.pool, &self.id, known).await;
            let lines = read.map_err(store_error(format!("read session {}", self.id)))?;
            let mut state = self.state.lock();
            state.new_lines.extend_from_slice(&lines.bytes);
            state.next_seq = lines.next_seq;
        }
        self.state.lock().token = Some(token);
        Ok(lease)
    }

    async fn wait_for(&self, lease_name: &str) -> Result<FencingToken, SessionError> {
        let failed = || store_error(format!("acquire session {}", self.id));
        // The first attempt has no ticket yet, so every waiting machine comes first.
        let (begun, mut ticket, mut poll) = (Instant::now(), i64::MAX, POLL);
        loop {
            if let Some(token) = self.try_acquire(lease_name, ticket).await.map_err(failed())? {
                return Ok(token);
            }
            let queued = enqueue(&self.core.pool, &self.id, lease_name).await.map_err(failed())?;
            let Some(position) = queued else {
                return Err(SessionError::NotFound { id: self.id.clone() });
            };
            ticket = position.ticket;
            if begun.elapsed() >= Duration::from_millis(self.core.wait_ms) {
                let waited_ms = self.core.wait_ms;
                let holder = position.holder.unwrap_or_else(|| "no machine, others wait".into());
                return Err(SessionError::LeaseTimeout { id: self.id.clone(), holder, waited_ms });
            }
            tokio::time::sleep(poll).await;
            // Turns last seconds: polling often helps only right after the wait began.
            poll = (poll * 3 / 2).min(MAX_POLL);
        }
    }

    /// Acquires the lease if it is free and no machine with a lower ticket waits.
    async fn try_acquire(
        &self,
        lease_name: &str,
        ticket: i64,
    ) -> Result<Option<FencingToken>, QueryError> {
        let statement = "with taken as ( \
                update @.sessions set fence = fence + 1, hold = $2, \
                    expires_at = clock_timestamp() + $4 * interval '1 millisecond' \
                where id = $1 \
                    and (hold is null or expires_at < clock_timestamp() or starts_with(hold, $3)) \
                    and not exists (select from @.waiters w where w.session = $1 and w.ticket < $5 \
                        and w.polled_at > clock_timestamp() - $6 * interval '1 millisecond') \
                returning fence, next_seq \
            ), \
            gone as (delete from @.waiters where hold = $2 and exists (select from taken)) \
            select fence, next_seq from taken";
        // A lease of this handle belongs to a turn that has ended, and need not expire first.
        let (own_prefix, lease_ms) = (format!("{}/", self.handle_name), self.core.lease_ms as f64);
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.id, Type::TEXT),
            (&lease_name, Type::TEXT),
            (&own_prefix, Type::TEXT),
            (&lease_ms, Type::FLOAT8),
            (&ticket, Type::INT8),
            (&QUEUE_MS, Type::FLOAT8),
        ];
        let rows = self.core.pool.rows(statement, &values).await?;
        Ok(rows.first().map(|row| {
            let (fence, next_seq) = (row.get(0), row.get(1));
            FencingToken { lease_name: lease_name.to_owned(), fence, next_seq }
        }))
    }
}

impl Drop for SessionHandle {
    /// Releases queued messages to other machines.
    fn drop(&mut self) {
        if !self.core.heartbeat.remove_inbox(&self.handle_name) {
            return;
        }
        let (pool, handle_name) = (self.core.pool.clone(), self.handle_name.clone());
        self.core.thread.spawn_deferred(async move {
            let statement = "update @.letters set expires_at = clock_timestamp() where keeper = $1";
            // If this fails, they are released when the lease expires.
            let _ = pool.run(statement, &[(&handle_name, Type::TEXT)]).await;
        });
    }
}

/// A position in the queue, and the current lease holder.
struct QueuePosition {
    ticket: i64,
    holder: Option<String>,
}

/// Enters the queue or renews the position; `None` if the session does not exist.
async fn enqueue(
    pool: &ConnectionPool,
    session: &str,
    lease_name: &str,
) -> Result<Option<QueuePosition>, QueryError> {
    let statement = "with queued as ( \
            insert into @.waiters (session, hold) select id, $2 from @.sessions where id = $1 \
            on conflict (hold) do update set polled_at = clock_timestamp() \
            returning ticket \
        ) \
        select queued.ticket, s.hold from queued, @.sessions s where s.id = $1";
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&session, Type::TEXT), (&lease_name, Type::TEXT)];
    let rows = pool.rows(statement, &values).await?;
    Ok(rows.first().map(|row| {
        let holder: Option<String> = row.get(1);
        QueuePosition { ticket: row.get(0), holder: holder.as_deref().map(holder_name) }
    }))
}

/// The process that holds a lease.
pub(super) fn holder_name(lease_name: &str) -> String {
    lease_name.split('/').next().unwrap_or_default().to_owned()
}

/// A lease, or the request for one. Dropping it releases the lease or leaves the queue.
#[derive(Debug)]
pub(super) struct PostgresLease {
    handle: Arc<SessionHandle>,
    name: String,
}

impl PostgresLease {
    fn new(handle: &Arc<SessionHandle>) -> PostgresLease {
        let mut state = handle.state.lock();
        // A name per lease and not per handle: a late release must not end the lease of the next turn.
        state.leases += 1;
        let name = format!("{}/{}", handle.handle_name, state.leases);
        drop(state);
        // Renewed before it is granted, so that it cannot expire in between.
        handle.core.heartbeat.add_lease(&name, &handle.id);
        PostgresLease { handle: handle.clone(), name }
    }
}

impl SessionLease for PostgresLease {}

impl Drop for PostgresLease {
    fn drop(&mut self) {
        let core = &self.handle.core;
        core.heartbeat.remove_lease(&self.name);
        let mut state = self.handle.state.lock();
        // The next turn of this handle may hold a lease already.
        state.token.take_if(|token| token.lease_name == self.name);
        drop(state);
        let (pool, id, name) = (core.pool.clone(), self.handle.id.clone(), self.name.clone());
        core.thread.spawn_deferred(async move {
            let statement = "with left_queue as (delete from @.waiters where hold = $2) \
                             update @.sessions set hold = null where id = $1 and hold = $2";
            // If this fails, the lease expires.
            let _ = pool.run(statement, &[(&id, Type::TEXT), (&name, Type::TEXT)]).await;
        });
    }
}

/// The lock of an opened session.
#[derive(Debug)]
pub(super) struct PostgresSessionLock(pub(super) Arc<SessionHandle>);

impl SharedSessionLock for PostgresSessionLock {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn SessionLease>, SessionError>> {
        let handle = self.0.clone();
        Box::pin(async move {
            let acquired = self.0.core.thread.run(handle.acquire()).await;
            let lease = acquired.unwrap_or_else(|| Err(store_closed(&self.0.id)))?;
            Ok(lease as Box<dyn SessionLease>)
        })
    }
}

/// The error of a store whose thread has ended.
pub(super) fn store_closed(id: &str) -> SessionError {
    let (action, reason) = (format!("acquire session {id}"), "the store is closed".into());
    SessionError::Store { action, reason }
}
