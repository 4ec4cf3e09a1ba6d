//! One session as rows: a line is taken with the newest fence and the right number, or not at all.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::entries::checksum;
use super::failed;
use super::lane::{Held, Lane, Place, closed, holder};
use super::letters::Letters;
use super::pool::{Pool, Trouble};
use crate::session::keeper::{LetterBox, SharedLane};
use crate::session::{Founding, Keeper, SessionError};

/// A session in the database, open for writing.
#[derive(Debug)]
pub(super) struct Rows {
    place: Arc<Place>,
}

impl Rows {
    pub(super) fn of(place: Arc<Place>) -> Rows {
        Rows { place }
    }

    fn append_with(&self, held: Held, line: &str) -> Result<(), SessionError> {
        let (pool, id) = (self.place.core.pool.clone(), self.place.id.clone());
        let line = format!("{line}\n").into_bytes();
        let asked = self.place.core.link.wait(async move {
            let line = Line { session: &id, held: &held, bytes: &line };
            line.append(&pool).await
        });
        let id = || self.place.id.clone();
        match self.place.core.answer(asked) {
            Ok(Appended::Kept) => {
                self.place.grew();
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
    /// Outside of a lane the session is taken for this one line.
    fn append(&mut self, line: &str) -> Result<(), SessionError> {
        if let Some(held) = self.place.held() {
            return self.append_with(held, line);
        }
        let entering = self.place.core.link.wait(self.place.clone().enter());
        let _hold = entering.unwrap_or_else(|| Err(closed(&self.place.id)))?;
        let held = self.place.held().filter(|_| !self.place.is_behind());
        let behind = || SessionError::Behind { id: self.place.id.clone() };
        self.append_with(held.ok_or_else(behind)?, line)
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

/// A line on its way.
struct Line<'a> {
    session: &'a str,
    held: &'a Held,
    bytes: &'a [u8],
}

/// What became of a line.
enum Appended {
    Kept,
    Fenced(String),
    Behind,
    Missing,
}

impl Line<'_> {
    /// One statement takes the line or leaves everything as it is. Where its answer was lost it is asked
    /// again, and finds the line that it has taken already: same number, same fence, same bytes.
    async fn append(&self, pool: &Pool) -> Result<Appended, Trouble> {
        let statement = "with held as ( \
                update @.sessions set next_seq = $3 + 1, changed_at = clock_timestamp() \
                where id = $1 and fence = $2 and next_seq = $3 returning id \
            ) \
            insert into @.entries (session, seq, fence, line, crc) \
            select id, $3, $2, $4, $5 from held returning seq";
        let crc = checksum(self.bytes);
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&self.session, Type::TEXT),
            (&self.held.fence, Type::INT8),
            (&self.held.next_seq, Type::INT8),
            (&self.bytes, Type::BYTEA),
            (&crc, Type::INT8),
        ];
        match pool.rows(statement, &values).await?.is_empty() {
            false => Ok(Appended::Kept),
            true => self.look(pool).await,
        }
    }

    /// Why it was not taken.
    async fn look(&self, pool: &Pool) -> Result<Appended, Trouble> {
        let statement = "select s.fence = $2, s.hold, e.fence = $2 and e.line = $4 \
            from @.sessions s left join @.entries e on e.session = s.id and e.seq = $3 \
            where s.id = $1";
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.session, Type::TEXT),
            (&self.held.fence, Type::INT8),
            (&self.held.next_seq, Type::INT8),
            (&self.bytes, Type::BYTEA),
        ];
        let rows = pool.rows(statement, &values).await?;
        let Some(row) = rows.first() else { return Ok(Appended::Missing) };
        let (is_newest, hold, is_there): (bool, Option<String>, Option<bool>) =
            (row.get(0), row.get(1), row.get(2));
        Ok(match (is_there, is_newest) {
            (Some(true), _) => Appended::Kept,
            (_, true) => Appended::Behind,
            (_, false) => {
                Appended::Fenced(hold.as_deref().map_or_else(|| "another machine".into(), holder))
            }
        })
    }
}
