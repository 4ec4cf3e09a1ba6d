//! One session as rows: a line is appended with the newest fencing token and the expected number, or not at all.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::core::{PostgresCore, store_error};
use super::entries::checksum;
use super::inbox::PostgresInbox;
use super::lease::{FencingToken, PostgresSessionLock, SessionHandle, holder_name, store_closed};
use super::pool::{ConnectionPool, QueryError};
use ctxhost_session::backend::{InboxBackend, SharedSessionLock};
use ctxhost_session::{NewSession, SessionBackend, SessionError};

/// Creates a session and opens it.
pub(super) fn create(
    core: &Arc<PostgresCore>,
    session: &NewSession<'_>,
) -> Result<Box<dyn SessionBackend>, SessionError> {
    let next_seq = core.insert_session(session)?;
    Ok(Box::new(PostgresBackend::new(SessionHandle::new(core, session.id, next_seq))))
}

/// A session in the database, open for writing.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    handle: Arc<SessionHandle>,
}

impl PostgresBackend {
    pub(super) fn new(handle: Arc<SessionHandle>) -> PostgresBackend {
        PostgresBackend { handle }
    }

    fn append_with(&self, token: FencingToken, lines: &[&str]) -> Result<(), SessionError> {
        let (pool, id) = (self.handle.core.pool.clone(), self.handle.id.clone());
        let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let lines = lines.iter().map(|line| format!("{line}\n").into_bytes()).collect();
        let outcome = self.handle.core.query(async move {
            let append = LineAppend { session: id, token, lines, count };
            append.run(&pool).await
        });
        let id = || self.handle.id.clone();
        match outcome {
            Ok(AppendOutcome::Stored) => {
                self.handle.advance(count);
                Ok(())
            }
            Ok(AppendOutcome::Fenced(holder)) => Err(SessionError::Fenced { id: id(), holder }),
            Ok(AppendOutcome::Stale) => Err(SessionError::Stale { id: id() }),
            Ok(AppendOutcome::NotFound) => Err(SessionError::NotFound { id: id() }),
            Err(QueryError::Lost(reason)) => Err(SessionError::OutcomeUnknown { id: id(), reason }),
            Err(error) => Err(store_error(format!("append to session {}", self.handle.id))(error)),
        }
    }
}

impl SessionBackend for PostgresBackend {
    fn append(&mut self, lines: &[&str]) -> Result<(), SessionError> {
        if let Some(token) = self.handle.token() {
            return self.append_with(token, lines);
        }
        // Without a lease of the caller, one is acquired for these lines only.
        let acquired = self.handle.core.thread.block_on(self.handle.clone().acquire());
        let _lease = acquired.unwrap_or_else(|| Err(store_closed(&self.handle.id)))?;
        let token = self.handle.token().filter(|_| !self.handle.has_new_lines());
        let stale = || SessionError::Stale { id: self.handle.id.clone() };
        self.append_with(token.ok_or_else(stale)?, lines)
    }

    fn refresh(&mut self) -> Result<Vec<u8>, SessionError> {
        Ok(self.handle.take_new_lines())
    }

    fn create(&self, session: &NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError> {
        create(&self.handle.core, session)
    }

    fn session_lock(&self) -> Arc<dyn SharedSessionLock> {
        Arc::new(PostgresSessionLock(self.handle.clone()))
    }

    fn inbox(&self) -> Arc<dyn InboxBackend> {
        Arc::new(PostgresInbox(self.handle.clone()))
    }
}

/// Lines to be appended.
struct LineAppend {
    session: String,
    token: FencingToken,
    lines: Vec<Vec<u8>>,
    count: i64,
}

enum AppendOutcome {
    Stored,
    /// Another lease is newer; with its holder.
    Fenced(String),
    /// Other lines were appended.
    Stale,
    NotFound,
}

impl LineAppend {
    /// Appends all lines or none in one statement.
    async fn run(&self, pool: &ConnectionPool) -> Result<AppendOutcome, QueryError> {
        // One statement is atomic without a transaction, and needs one round trip.
        let statement = "with held as ( \
                update @.sessions set next_seq = next_seq + $6, changed_at = clock_timestamp() \
                where id = $1 and fence = $2 and next_seq = $3 returning id \
            ) \
            insert into @.entries (session, seq, fence, line, crc) \
            select id, $3 + number - 1, $2, line, crc \
            from held, unnest($4, $5) with ordinality as given (line, crc, number) \
            returning seq";
        let crcs: Vec<i64> = self.lines.iter().map(|line| checksum(line)).collect();
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.session, Type::TEXT),
            (&self.token.fence, Type::INT8),
            (&self.token.next_seq, Type::INT8),
            (&self.lines, Type::BYTEA_ARRAY),
            (&crcs, Type::INT8_ARRAY),
            (&self.count, Type::INT8),
        ];
        if pool.rows(statement, &values).await?.is_empty() {
            self.explain(pool).await
        } else {
            Ok(AppendOutcome::Stored)
        }
    }

    /// Why no line was inserted.
    async fn explain(&self, pool: &ConnectionPool) -> Result<AppendOutcome, QueryError> {
        // The pool repeats a statement whose reply was lost. If the first attempt was committed, its lines
        // are there with the same numbers, fence and bytes.
        let statement = "select s.fence = $2, s.hold, ( \
                select count(*) from @.entries e, unnest($4) with ordinality as given (line, number) \
                where e.session = $1 and e.seq = $3 + given.number - 1 \
                    and e.fence = $2 and e.line = given.line \
            ) = $5 \
            from @.sessions s where s.id = $1";
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.session, Type::TEXT),
            (&self.token.fence, Type::INT8),
            (&self.token.next_seq, Type::INT8),
            (&self.lines, Type::BYTEA_ARRAY),
            (&self.count, Type::INT8),
        ];
        let rows = pool.rows(statement, &values).await?;
        let Some(row) = rows.first() else { return Ok(AppendOutcome::NotFound) };
        let (is_newest, lease, is_stored): (bool, Option<String>, bool) =
            (row.get(0), row.get(1), row.get(2));
        Ok(match (is_stored, is_newest) {
            (true, _) => AppendOutcome::Stored,
            (false, true) => AppendOutcome::Stale,
            (false, false) => AppendOutcome::Fenced(
                lease.as_deref().map_or_else(|| "another machine".into(), holder_name),
            ),
        })
    }
}
