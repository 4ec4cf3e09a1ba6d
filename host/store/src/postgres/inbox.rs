//! Queued messages in the database. The machine that stored a message delivers it; if it is gone, the next machine
//! that opens the session does.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::core::store_error;
use super::lease::SessionHandle;
use ctxhost_session::SessionError;
use ctxhost_session::backend::{InboxBackend, StoredInboxMessage};

/// The queued messages of one session.
#[derive(Debug)]
pub(super) struct PostgresInbox(pub(super) Arc<SessionHandle>);

impl InboxBackend for PostgresInbox {
    fn store(&self, message: &StoredInboxMessage) -> Result<(), SessionError> {
        // Renewed before it is stored, so that it cannot expire in between.
        self.0.core.heartbeat.add_inbox(&self.0.handle_name);
        let (handle, message) = (self.0.clone(), message.clone());
        let stored = self.0.core.query(async move {
            let (json, lease_ms) = (message.message.as_bytes(), handle.core.lease_ms as f64);
            let values: [(&(dyn ToSql + Sync), Type); 5] = [
                (&handle.id, Type::TEXT),
                (&message.id, Type::TEXT),
                (&json, Type::BYTEA),
                (&handle.handle_name, Type::TEXT),
                (&lease_ms, Type::FLOAT8),
            ];
            let statement = "insert into @.letters (session, id, message, keeper, expires_at) \
                values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond') \
                on conflict (session, id) do nothing";
            handle.core.pool.run(statement, &values).await
        });
        stored.map_err(store_error(format!("store a message for session {}", self.0.id)))
    }

    fn claim(&self) -> Result<Vec<StoredInboxMessage>, SessionError> {
        let handle = self.0.clone();
        let claimed = self.0.core.query(async move {
            let lease_ms = handle.core.lease_ms as f64;
            let values: [(&(dyn ToSql + Sync), Type); 3] = [
                (&handle.id, Type::TEXT),
                (&handle.handle_name, Type::TEXT),
                (&lease_ms, Type::FLOAT8),
            ];
            // Includes messages that this handle has claimed: the reply to an earlier attempt may be lost.
            let statement = "with taken as ( \
                    update @.letters set keeper = $2, \
                        expires_at = clock_timestamp() + $3 * interval '1 millisecond' \
                    where session = $1 and (keeper = $2 or expires_at < clock_timestamp()) \
                    returning ticket, id, message \
                ) \
                select id, message from taken order by ticket";
            handle.core.pool.rows(statement, &values).await
        });
        let action = format!("read messages for session {}", self.0.id);
        let rows = claimed.map_err(store_error(action))?;
        if !rows.is_empty() {
            self.0.core.heartbeat.add_inbox(&self.0.handle_name);
        }
        let message = |row: &tokio_postgres::Row| {
            let json: &[u8] = row.get(1);
            let message = String::from_utf8_lossy(json).into_owned();
            StoredInboxMessage { id: row.get(0), message }
        };
        Ok(rows.iter().map(message).collect())
    }

    fn remove(&self, ids: &[String]) -> Result<(), SessionError> {
        let (handle, ids) = (self.0.clone(), ids.to_vec());
        let removed = self.0.core.query(async move {
            let values: [(&(dyn ToSql + Sync), Type); 2] =
                [(&handle.id, Type::TEXT), (&ids, Type::TEXT_ARRAY)];
            let statement = "delete from @.letters where session = $1 and id = any($2)";
            handle.core.pool.run(statement, &values).await
        });
        removed.map_err(store_error(format!("remove messages of session {}", self.0.id)))
    }
}
