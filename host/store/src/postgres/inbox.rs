//! What was said to a session and waits, in the database: whoever keeps a letter delivers it, and after
//! a machine is gone whoever has the session next.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::lease::SessionHandle;
use super::store_error;
use ctxhost_session::SessionError;
use ctxhost_session::backend::{InboxBackend, StoredInboxMessage};

/// The letters of one session.
#[derive(Debug)]
pub(super) struct PostgresInbox(pub(super) Arc<SessionHandle>);

impl InboxBackend for PostgresInbox {
    fn store(&self, letter: &StoredInboxMessage) -> Result<(), SessionError> {
        self.0.core.beat.add_inbox(&self.0.handle_name);
        let (place, letter) = (self.0.clone(), letter.clone());
        let asked = self.0.core.link.block_on(async move {
            let (message, lease_ms) = (letter.message.as_bytes(), place.core.lease_ms as f64);
            let values: [(&(dyn ToSql + Sync), Type); 5] = [
                (&place.id, Type::TEXT),
                (&letter.id, Type::TEXT),
                (&message, Type::BYTEA),
                (&place.handle_name, Type::TEXT),
                (&lease_ms, Type::FLOAT8),
            ];
            let statement = "insert into @.letters (session, id, message, keeper, expires_at) \
                values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond') \
                on conflict (session, id) do nothing";
            place.core.pool.run(statement, &values).await
        });
        self.0
            .core
            .require_answer(asked)
            .map_err(store_error(format!("keep words for session {}", self.0.id)))
    }

    fn claim(&self) -> Result<Vec<StoredInboxMessage>, SessionError> {
        let place = self.0.clone();
        let asked = self.0.core.link.block_on(async move {
            let lease_ms = place.core.lease_ms as f64;
            let values: [(&(dyn ToSql + Sync), Type); 3] = [
                (&place.id, Type::TEXT),
                (&place.handle_name, Type::TEXT),
                (&lease_ms, Type::FLOAT8),
            ];
            let statement = "with taken as ( \
                    update @.letters set keeper = $2, \
                        expires_at = clock_timestamp() + $3 * interval '1 millisecond' \
                    where session = $1 and (keeper = $2 or expires_at < clock_timestamp()) \
                    returning ticket, id, message \
                ) \
                select id, message from taken order by ticket";
            place.core.pool.rows(statement, &values).await
        });
        let action = format!("read words for session {}", self.0.id);
        let rows = self.0.core.require_answer(asked).map_err(store_error(action))?;
        if !rows.is_empty() {
            self.0.core.beat.add_inbox(&self.0.handle_name);
        }
        let letter = |row: &tokio_postgres::Row| {
            let message: &[u8] = row.get(1);
            let message = String::from_utf8_lossy(message).into_owned();
            StoredInboxMessage { id: row.get(0), message }
        };
        Ok(rows.iter().map(letter).collect())
    }

    fn remove(&self, ids: &[String]) -> Result<(), SessionError> {
        let (place, ids) = (self.0.clone(), ids.to_vec());
        let asked = self.0.core.link.block_on(async move {
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&place.id, Type::TEXT), (&ids, Type::TEXT_ARRAY)];
            let statement = "delete from @.letters where session = $1 and id = any($2)";
            place.core.pool.run(statement, &values).await
        });
        self.0
            .core
            .require_answer(asked)
            .map_err(store_error(format!("forget words for session {}", self.0.id)))
    }
}
