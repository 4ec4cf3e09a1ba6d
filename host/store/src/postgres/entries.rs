//! The lines of a session: read in order, and inserted in one transaction when it is created.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::core::{PostgresCore, store_error};
use super::pool::{ConnectionGuard, ConnectionPool, QueryError};
use ctxhost_session::{NewSession, SessionError};

/// Bytes per statement when a whole session is inserted. The server accepts up to a gigabyte, but holds it in
/// memory.
const CHUNK_BYTES: usize = 8 << 20;

/// Lines of a session.
#[derive(Debug, Default)]
pub(super) struct SessionLines {
    /// Their bytes, with line breaks.
    pub(super) bytes: Vec<u8>,
    /// Number of the next line.
    pub(super) next_seq: i64,
}

/// The checksum that is stored with a line.
pub(super) fn checksum(line: &[u8]) -> i64 {
    i64::from(crc32fast::hash(line))
}

impl PostgresCore {
    /// Reads all lines of a session.
    pub(super) fn read_session(&self, id: &str) -> Result<SessionLines, SessionError> {
        let (pool, session) = (self.pool.clone(), id.to_owned());
        let read = self.query(async move { read_lines_from(&pool, &session, 0).await });
        let lines = read.map_err(store_error(format!("read session {id}")))?;
        if lines.next_seq == 0 {
            return Err(SessionError::NotFound { id: id.to_owned() });
        }
        Ok(lines)
    }

    /// Inserts a session; returns the number of the next line.
    pub(super) fn insert_session(&self, session: &NewSession<'_>) -> Result<i64, SessionError> {
        let id = session.id;
        if id.is_empty() {
            let reason = "its header has no id".to_owned();
            return Err(SessionError::Store { action: "create the session".into(), reason });
        }
        let lines: Arc<[Vec<u8>]> =
            session.bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let next_seq = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let new = SessionInsert {
            id: id.to_owned(),
            cwd: session.cwd.to_owned(),
            // Distinguishes it from a session with the same id that another machine creates.
            founder: self.new_handle_name(),
            next_seq,
            lines,
        };
        let pool = self.pool.clone();
        let inserted = self.query(async move { new.run(&pool).await });
        if inserted.map_err(store_error(format!("create session {id}")))? {
            Ok(next_seq)
        } else {
            Err(SessionError::AlreadyExists { id: id.to_owned() })
        }
    }
}

/// Reads the lines of a session from a number on. After a lost connection, it continues at the next line.
pub(super) async fn read_lines_from(
    pool: &ConnectionPool,
    session: &str,
    first: i64,
) -> Result<SessionLines, QueryError> {
    let statement =
        "select seq, line, crc from @.entries where session = $1 and seq >= $2 order by seq";
    let mut lines = SessionLines { bytes: Vec::new(), next_seq: first };
    let mut retry = pool.retry();
    loop {
        let from = lines.next_seq;
        let attempt = async {
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&session, Type::TEXT), (&from, Type::INT8)];
            pool.acquire()
                .await?
                .for_each_row(statement, &values, |row| lines.add(session, &row))
                .await
        };
        match attempt.await {
            // Repeats from the first missing line, so that a lost connection does not read a long session twice.
            Err(QueryError::Lost(reason)) if retry.wait_for_retry(&reason).await => {}
            outcome => return outcome.map(|()| lines),
        }
    }
}

impl SessionLines {
    fn add(&mut self, session: &str, row: &tokio_postgres::Row) {
        let (seq, line, crc): (i64, &[u8], i64) = (row.get(0), row.get(1), row.get(2));
        if crc != checksum(line) {
            // Not fatal: the rest of the session is more useful than an error.
            tracing::error!(
                session,
                seq,
                "a stored line differs from its checksum; restore it from a backup"
            );
        }
        self.bytes.extend_from_slice(line);
        self.next_seq = seq + 1;
    }
}

/// A session to be inserted.
struct SessionInsert {
    id: String,
    cwd: String,
    founder: String,
    next_seq: i64,
    lines: Arc<[Vec<u8>]>,
}

impl SessionInsert {
    /// Inserts everything or nothing; returns whether the id was free.
    async fn run(&self, pool: &ConnectionPool) -> Result<bool, QueryError> {
        let mut retry = pool.retry();
        loop {
            match self.run_once(pool).await {
                Err(QueryError::Lost(reason)) if retry.wait_for_retry(&reason).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn run_once(&self, pool: &ConnectionPool) -> Result<bool, QueryError> {
        let mut connection = pool.acquire().await?;
        let inserted = self.insert(&mut connection).await;
        if inserted.is_err() {
            // The transaction is open: without the connection, the server rolls it back.
            connection.discard();
        }
        inserted
    }

    async fn insert(&self, connection: &mut ConnectionGuard<'_>) -> Result<bool, QueryError> {
        connection.run_batch("begin").await?;
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.id, Type::TEXT),
            (&self.cwd, Type::TEXT),
            (&self.founder, Type::TEXT),
            (&self.next_seq, Type::INT8),
        ];
        let statement = "insert into @.sessions (id, cwd, founder, next_seq) \
                         values ($1, $2, $3, $4) on conflict (id) do nothing returning id";
        if connection.rows(statement, &values).await?.is_empty() {
            // An earlier attempt, whose reply was lost, may have been committed.
            let statement = "select founder = $2 from @.sessions where id = $1";
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&self.id, Type::TEXT), (&self.founder, Type::TEXT)];
            let rows = connection.rows(statement, &values).await?;
            connection.run_batch("rollback").await?;
            return Ok(rows.first().is_some_and(|row| row.get(0)));
        }
        let mut seq = 0_i64;
        for chunk in chunks(&self.lines) {
            let crcs: Vec<i64> = chunk.iter().map(|line| checksum(line)).collect();
            let values: [(&(dyn ToSql + Sync), Type); 4] = [
                (&self.id, Type::TEXT),
                (&seq, Type::INT8),
                (&chunk, Type::BYTEA_ARRAY),
                (&crcs, Type::INT8_ARRAY),
            ];
            // Fence 0 is older than that of any lease.
            let statement = "insert into @.entries (session, seq, fence, line, crc) \
                             select $1, $2 + number - 1, 0, line, crc \
                             from unnest($3, $4) with ordinality as given (line, crc, number)";
            connection.rows(statement, &values).await?;
            seq += i64::try_from(chunk.len()).unwrap_or_default();
        }
        connection.run_batch("commit").await?;
        Ok(true)
    }
}

/// Splits lines into chunks of about [`CHUNK_BYTES`].
fn chunks(lines: &[Vec<u8>]) -> impl Iterator<Item = &[Vec<u8>]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |line: &&Vec<u8>| {
            let is_first = bytes == 0;
            bytes += line.len();
            is_first || bytes <= CHUNK_BYTES
        };
        let count = rest.iter().take_while(fits).count();
        let (chunk, after) = rest.split_at_checked(count)?;
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_all_lines_in_order() {
        let sizes = [1, CHUNK_BYTES, 2 * CHUNK_BYTES, 1, 1, CHUNK_BYTES - 2, 1];
        let lines: Vec<Vec<u8>> = sizes.iter().map(|size| vec![b'x'; *size]).collect();
        let counts: Vec<usize> = chunks(&lines).map(<[_]>::len).collect();
        assert_eq!(counts, [1, 1, 1, 3, 1]);
        assert_eq!(chunks(&[]).count(), 0);
    }
}
