//! A session is given to one machine at a time, by a lease with a fence.
//!
//! ```text
//!  sessions row   hold ──── who has it, until when by the server's clock; renewed while the machine lives
//!                 fence ─── grows with every hold; a line is taken only with the newest
//!                 next_seq  the number of the line that comes next
//! ```
//!
//! Whoever waits stands in a queue in the database, so that no machine starves another. A place in it is
//! lost by not asking for two seconds, a session by not renewing for the time of a lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};

use super::entries::read_lines_from;
use super::pool::{ConnectionPool, QueryError};
use super::{PostgresCore, store_error};
use ctxhost_session::SessionError;
use ctxhost_session::backend::{SessionLease, SharedSessionLock};

/// The first pause of whoever waits; each further one takes half as long again, up to the last number.
const POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// How long somebody who does not ask keeps a place in the queue, in milliseconds: ten of the longest
/// pauses.
const QUEUE_MS: f64 = 2_000.0;

/// An open session: what its keeper, its lane and its letters share.
#[derive(Debug)]
pub(super) struct SessionHandle {
    pub(super) core: Arc<PostgresCore>,
    /// The session.
    pub(super) id: String,
    /// This opening of it, for other machines.
    pub(super) handle_name: String,
    state: Mutex<HandleState>,
}

#[derive(Debug)]
struct HandleState {
    /// The number of the line that comes next, as far as this machine knows.
    next_seq: i64,
    /// What it read of others and has not handed out.
    fresh: Vec<u8>,
    held: Option<FencingToken>,
    /// Holds so far.
    holds: u64,
}

/// What a line needs to be taken.
#[derive(Clone, Debug)]
pub(super) struct FencingToken {
    pub(super) hold: String,
    pub(super) fence: i64,
    pub(super) next_seq: i64,
}

impl SessionHandle {
    /// A session whose lines before `next_seq` are known.
    pub(super) fn new(core: &Arc<PostgresCore>, id: &str, next_seq: i64) -> Arc<SessionHandle> {
        let state = HandleState { next_seq, fresh: Vec::new(), held: None, holds: 0 };
        let keeper = core.new_handle_name();
        let (core, id, state) = (core.clone(), id.to_owned(), Mutex::new(state));
        Arc::new(SessionHandle { core, id, handle_name: keeper, state })
    }

    /// What is held now.
    pub(super) fn token(&self) -> Option<FencingToken> {
        let state = self.state();
        state.held.clone().map(|held| FencingToken { next_seq: state.next_seq, ..held })
    }

    /// What was read of others, once.
    pub(super) fn take_new_lines(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().fresh)
    }

    /// Whether there is something that others wrote and this machine has not taken in.
    pub(super) fn has_new_lines(&self) -> bool {
        !self.state().fresh.is_empty()
    }

    /// Lines were taken.
    pub(super) fn advance(&self, lines: i64) {
        self.state().next_seq += lines;
    }

    /// Waits for the session and reads what others wrote meanwhile.
    pub(super) async fn acquire(self: Arc<Self>) -> Result<Box<PostgresLease>, SessionError> {
        let hold = Box::new(PostgresLease::new(&self));
        let taken = self.wait_for(&hold.name).await?;
        let known = self.state().next_seq;
        if taken.next_seq > known {
            let read = read_lines_from(&self.core.pool, &self.id, known).await;
            let lines = read.map_err(store_error(format!("read session {}", self.id)))?;
            let mut state = self.state();
            state.fresh.extend_from_slice(&lines.bytes);
            state.next_seq = lines.next_seq;
        }
        self.state().held = Some(taken);
        Ok(hold)
    }

    async fn wait_for(&self, hold: &str) -> Result<FencingToken, SessionError> {
        let trouble = || store_error(format!("take session {}", self.id));
        let (begun, mut ticket, mut poll) = (Instant::now(), i64::MAX, POLL);
        loop {
            if let Some(held) = self.take(hold, ticket).await.map_err(trouble())? {
                return Ok(held);
            }
            let queued = queue(&self.core.pool, &self.id, hold).await.map_err(trouble())?;
            let Some(queued) = queued else {
                return Err(SessionError::NotFound { id: self.id.clone() });
            };
            ticket = queued.ticket;
            if begun.elapsed() >= Duration::from_millis(self.core.wait_ms) {
                let waited_ms = self.core.wait_ms;
                let holder = queued.holder.unwrap_or_else(|| "nobody, but others wait".into());
                return Err(SessionError::LeaseTimeout { id: self.id.clone(), holder, waited_ms });
            }
            tokio::time::sleep(poll).await;
            poll = (poll * 3 / 2).min(LONGEST_POLL);
        }
    }

    /// Takes the session where it is free and nobody waits before this ticket.
    async fn take(&self, hold: &str, ticket: i64) -> Result<Option<FencingToken>, QueryError> {
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
        // What this very session still holds is from a turn that is over.
        let (own, lease_ms) = (format!("{}/", self.handle_name), self.core.lease_ms as f64);
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.id, Type::TEXT),
            (&hold, Type::TEXT),
            (&own, Type::TEXT),
            (&lease_ms, Type::FLOAT8),
            (&ticket, Type::INT8),
            (&QUEUE_MS, Type::FLOAT8),
        ];
        let rows = self.core.pool.rows(statement, &values).await?;
        Ok(rows.first().map(|row| {
            let (fence, next_seq) = (row.get(0), row.get(1));
            FencingToken { hold: hold.to_owned(), fence, next_seq }
        }))
    }

    fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionHandle {
    /// Letters that nobody here will deliver any more are the next machine's.
    fn drop(&mut self) {
        if !self.core.beat.remove_inbox(&self.handle_name) {
            return;
        }
        let (pool, keeper) = (self.core.pool.clone(), self.handle_name.clone());
        self.core.link.spawn_deferred(async move {
            let statement = "update @.letters set expires_at = clock_timestamp() where keeper = $1";
            // Without this they wait until the lease is over.
            let _ = pool.run(statement, &[(&keeper, Type::TEXT)]).await;
        });
    }
}

/// A place in the queue, and who has the session.
struct QueuePosition {
    ticket: i64,
    holder: Option<String>,
}

/// Takes a place in the queue or keeps it; `None` where there is no such session.
async fn queue(
    pool: &ConnectionPool,
    session: &str,
    hold: &str,
) -> Result<Option<QueuePosition>, QueryError> {
    let statement = "with queued as ( \
            insert into @.waiters (session, hold) select id, $2 from @.sessions where id = $1 \
            on conflict (hold) do update set polled_at = clock_timestamp() \
            returning ticket \
        ) \
        select queued.ticket, s.hold from queued, @.sessions s where s.id = $1";
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&session, Type::TEXT), (&hold, Type::TEXT)];
    let rows = pool.rows(statement, &values).await?;
    Ok(rows.first().map(|row| {
        let hold: Option<String> = row.get(1);
        QueuePosition { ticket: row.get(0), holder: hold.as_deref().map(holder_name) }
    }))
}

/// Who has a hold, without its numbers.
pub(super) fn holder_name(hold: &str) -> String {
    hold.split('/').next().unwrap_or_default().to_owned()
}

/// The right to write a session, or the wish for it. Dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct PostgresLease {
    place: Arc<SessionHandle>,
    name: String,
}

impl PostgresLease {
    fn new(place: &Arc<SessionHandle>) -> PostgresLease {
        let mut state = place.state();
        state.holds += 1;
        let name = format!("{}/{}", place.handle_name, state.holds);
        drop(state);
        place.core.beat.add_lease(&name, &place.id);
        PostgresLease { place: place.clone(), name }
    }
}

impl SessionLease for PostgresLease {}

impl Drop for PostgresLease {
    fn drop(&mut self) {
        let core = &self.place.core;
        core.beat.remove_lease(&self.name);
        let mut state = self.place.state();
        state.held.take_if(|held| held.hold == self.name);
        drop(state);
        let (pool, id, hold) = (core.pool.clone(), self.place.id.clone(), self.name.clone());
        core.link.spawn_deferred(async move {
            let statement = "with left_queue as (delete from @.waiters where hold = $2) \
                             update @.sessions set hold = null where id = $1 and hold = $2";
            // If it cannot be given back, the lease ends by itself.
            let _ = pool.run(statement, &[(&id, Type::TEXT), (&hold, Type::TEXT)]).await;
        });
    }
}

/// The lane of an open session.
#[derive(Debug)]
pub(super) struct PostgresSessionLock(pub(super) Arc<SessionHandle>);

impl SharedSessionLock for PostgresSessionLock {
    fn acquire(&self) -> BoxFuture<'_, Result<Box<dyn SessionLease>, SessionError>> {
        let place = self.0.clone();
        Box::pin(async move {
            let entered = self.0.core.link.run(place.acquire()).await;
            let hold = entered.unwrap_or_else(|| Err(store_closed(&self.0.id)))?;
            Ok(hold as Box<dyn SessionLease>)
        })
    }
}

/// The store is at its end.
pub(super) fn store_closed(id: &str) -> SessionError {
    SessionError::Store { action: format!("take session {id}"), reason: "it is closed".into() }
}
