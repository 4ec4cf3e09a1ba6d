//! One session as rows: a line is taken with the newest fence and the right number, or not at all.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::entries::checksum;
use super::inbox::PostgresInbox;
use super::lease::{FencingToken, PostgresSessionLock, SessionHandle, holder_name, store_closed};
use super::pool::{ConnectionPool, QueryError};
use super::store_error;
use ctxhost_session::backend::{InboxBackend, SharedSessionLock};
use ctxhost_session::{NewSession, SessionBackend, SessionError};

/// A session in the database, open for writing.
#[derive(Debug)]
pub(super) struct PostgresBackend {
    place: Arc<SessionHandle>,
}

impl PostgresBackend {
    pub(super) fn new(place: Arc<SessionHandle>) -> PostgresBackend {
        PostgresBackend { place }
    }

    fn append_with(&self, held: FencingToken, lines: &[&str]) -> Result<(), SessionError> {
        let (pool, id) = (self.place.core.pool.clone(), self.place.id.clone());
        let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let lines = lines.iter().map(|line| format!("{line}\n").into_bytes()).collect();
        let asked = self.place.core.link.block_on(async move {
            let lines = LineAppend { session: id, held, lines, count };
            lines.append(&pool).await
        });
        let id = || self.place.id.clone();
        match self.place.core.require_answer(asked) {
            Ok(AppendOutcome::Kept) => {
                self.place.advance(count);
                Ok(())
            }
            Ok(AppendOutcome::Fenced(holder)) => Err(SessionError::Fenced { id: id(), holder }),
            Ok(AppendOutcome::Behind) => Err(SessionError::Stale { id: id() }),
            Ok(AppendOutcome::Missing) => Err(SessionError::NotFound { id: id() }),
            Err(QueryError::Lost(reason)) => Err(SessionError::OutcomeUnknown { id: id(), reason }),
            Err(trouble) => {
                Err(store_error(format!("append to session {}", self.place.id))(trouble))
            }
        }
    }
}

impl SessionBackend for PostgresBackend {
    /// Outside of a lane the session is taken for these lines alone.
    fn append(&mut self, lines: &[&str]) -> Result<(), SessionError> {
        if let Some(held) = self.place.token() {
            return self.append_with(held, lines);
        }
        let entering = self.place.core.link.block_on(self.place.clone().acquire());
        let _hold = entering.unwrap_or_else(|| Err(store_closed(&self.place.id)))?;
        let held = self.place.token().filter(|_| !self.place.has_new_lines());
        let behind = || SessionError::Stale { id: self.place.id.clone() };
        self.append_with(held.ok_or_else(behind)?, lines)
    }

    fn refresh(&mut self) -> Result<Vec<u8>, SessionError> {
        Ok(self.place.take_new_lines())
    }

    fn create(&self, founding: &NewSession<'_>) -> Result<Box<dyn SessionBackend>, SessionError> {
        self.place.core.insert(founding)
    }

    fn session_lock(&self) -> Arc<dyn SharedSessionLock> {
        Arc::new(PostgresSessionLock(self.place.clone()))
    }

    fn inbox(&self) -> Arc<dyn InboxBackend> {
        Arc::new(PostgresInbox(self.place.clone()))
    }
}

/// Lines on their way.
struct LineAppend {
    session: String,
    held: FencingToken,
    lines: Vec<Vec<u8>>,
    count: i64,
}

/// What became of lines.
enum AppendOutcome {
    Kept,
    Fenced(String),
    Behind,
    Missing,
}

impl LineAppend {
    /// One statement takes the lines or leaves everything as it is. Where its answer was lost it is asked
    /// again, and finds the lines that it has taken already: same numbers, same fence, same bytes.
    async fn append(&self, pool: &ConnectionPool) -> Result<AppendOutcome, QueryError> {
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
            (&self.held.fence, Type::INT8),
            (&self.held.next_seq, Type::INT8),
            (&self.lines, Type::BYTEA_ARRAY),
            (&crcs, Type::INT8_ARRAY),
            (&self.count, Type::INT8),
        ];
        match pool.rows(statement, &values).await?.is_empty() {
            false => Ok(AppendOutcome::Kept),
            true => self.look(pool).await,
        }
    }

    /// Why they were not taken.
    async fn look(&self, pool: &ConnectionPool) -> Result<AppendOutcome, QueryError> {
        let statement = "select s.fence = $2, s.hold, ( \
                select count(*) from @.entries e, unnest($4) with ordinality as given (line, number) \
                where e.session = $1 and e.seq = $3 + given.number - 1 \
                    and e.fence = $2 and e.line = given.line \
            ) = $5 \
            from @.sessions s where s.id = $1";
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.session, Type::TEXT),
            (&self.held.fence, Type::INT8),
            (&self.held.next_seq, Type::INT8),
            (&self.lines, Type::BYTEA_ARRAY),
            (&self.count, Type::INT8),
        ];
        let rows = pool.rows(statement, &values).await?;
        let Some(row) = rows.first() else { return Ok(AppendOutcome::Missing) };
        let (is_newest, hold, are_there): (bool, Option<String>, bool) =
            (row.get(0), row.get(1), row.get(2));
        Ok(match (are_there, is_newest) {
            (true, _) => AppendOutcome::Kept,
            (false, true) => AppendOutcome::Behind,
            (false, false) => AppendOutcome::Fenced(
                hold.as_deref().map_or_else(|| "another machine".into(), holder_name),
            ),
        })
    }
}
