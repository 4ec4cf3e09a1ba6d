//! One session as rows: a line is taken with the newest fence and the right number, or not at all.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::entries::checksum;
use super::failed;
use super::lane::{Held, Lane, Place, closed, holder};
use super::letters::Letters;
use super::pool::{Pool, Trouble};
use ctxhost_session::keeper::{LetterBox, SharedLane};
use ctxhost_session::{Founding, Keeper, SessionError};

/// A session in the database, open for writing.
#[derive(Debug)]
pub(super) struct Rows {
    place: Arc<Place>,
}

impl Rows {
    pub(super) fn of(place: Arc<Place>) -> Rows {
        Rows { place }
    }

    fn append_with(&self, held: Held, lines: &[&str]) -> Result<(), SessionError> {
        let (pool, id) = (self.place.core.pool.clone(), self.place.id.clone());
        let count = i64::try_from(lines.len()).unwrap_or(i64::MAX);
        let lines = lines.iter().map(|line| format!("{line}\n").into_bytes()).collect();
        let asked = self.place.core.link.wait(async move {
            let lines = Lines { session: id, held, lines, count };
            lines.append(&pool).await
        });
        let id = || self.place.id.clone();
        match self.place.core.answer(asked) {
            Ok(Appended::Kept) => {
                self.place.grew(count);
                Ok(())
            }
            Ok(Appended::Fenced(holder)) => Err(SessionError::Fenced { id: id(), holder }),
            Ok(Appended::Behind) => Err(SessionError::Behind { id: id() }),
            Ok(Appended::Missing) => Err(SessionError::Missing { id: id() }),
            Err(Trouble::Lost(reason)) => Err(SessionError::Unsure { id: id(), reason }),
            Err(trouble) => Err(failed(format!("append to session {}", self.place.id))(trouble)),
        }
    }
}

impl Keeper for Rows {
    /// Outside of a lane the session is taken for these lines alone.
    fn append(&mut self, lines: &[&str]) -> Result<(), SessionError> {
        if let Some(held) = self.place.held() {
            return self.append_with(held, lines);
        }
        let entering = self.place.core.link.wait(self.place.clone().enter());
        let _hold = entering.unwrap_or_else(|| Err(closed(&self.place.id)))?;
        let held = self.place.held().filter(|_| !self.place.is_behind());
        let behind = || SessionError::Behind { id: self.place.id.clone() };
        self.append_with(held.ok_or_else(behind)?, lines)
    }

    fn refresh(&mut self) -> Result<Vec<u8>, SessionError> {
        Ok(self.place.take_fresh())
    }

    fn found(&self, founding: &Founding<'_>) -> Result<Box<dyn Keeper>, SessionError> {
        self.place.core.found(founding)
    }

    fn lane(&self) -> Arc<dyn SharedLane> {
        Arc::new(Lane(self.place.clone()))
    }

    fn letters(&self) -> Arc<dyn LetterBox> {
        Arc::new(Letters(self.place.clone()))
    }
}

/// Lines on their way.
struct Lines {
    session: String,
    held: Held,
    lines: Vec<Vec<u8>>,
    count: i64,
}

/// What became of lines.
enum Appended {
    Kept,
    Fenced(String),
    Behind,
    Missing,
}

impl Lines {
    /// One statement takes the lines or leaves everything as it is. Where its answer was lost it is asked
    /// again, and finds the lines that it has taken already: same numbers, same fence, same bytes.
    async fn append(&self, pool: &Pool) -> Result<Appended, Trouble> {
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
            false => Ok(Appended::Kept),
            true => self.look(pool).await,
        }
    }

    /// Why they were not taken.
    async fn look(&self, pool: &Pool) -> Result<Appended, Trouble> {
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
        let Some(row) = rows.first() else { return Ok(Appended::Missing) };
        let (is_newest, hold, are_there): (bool, Option<String>, bool) =
            (row.get(0), row.get(1), row.get(2));
        Ok(match (are_there, is_newest) {
            (true, _) => Appended::Kept,
            (false, true) => Appended::Behind,
            (false, false) => {
                Appended::Fenced(hold.as_deref().map_or_else(|| "another machine".into(), holder))
            }
        })
    }
}
