//! What this machine has is renewed, as long as it lives.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio_postgres::types::Type;

use super::pool::{ConnectionPool, QueryError};

/// Renewals in the time of one lease: two may fail.
const RENEWALS: u32 = 3;

/// What is renewed.
#[derive(Debug, Default)]
pub(super) struct LeaseHeartbeat {
    had: Mutex<HeartbeatState>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    /// Sessions by hold.
    holds: HashMap<String, String>,
    /// Open sessions that keep letters.
    keepers: HashSet<String>,
}

impl LeaseHeartbeat {
    /// A session is held, or about to be.
    pub(super) fn add_lease(&self, hold: &str, session: &str) {
        self.had().holds.insert(hold.to_owned(), session.to_owned());
    }

    /// It is not any more.
    pub(super) fn remove_lease(&self, hold: &str) {
        self.had().holds.remove(hold);
    }

    /// An open session keeps letters.
    pub(super) fn add_inbox(&self, keeper: &str) {
        self.had().keepers.insert(keeper.to_owned());
    }

    /// A session is closed; whether it kept letters.
    pub(super) fn remove_inbox(&self, keeper: &str) -> bool {
        self.had().keepers.remove(keeper)
    }

    fn had(&self) -> MutexGuard<'_, HeartbeatState> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews until the store is gone. The connections are its own.
pub(super) async fn renew(beat: Weak<LeaseHeartbeat>, heart: ConnectionPool, lease_ms: u64) {
    let pause = Duration::from_millis(lease_ms) / RENEWALS;
    loop {
        tokio::time::sleep(pause).await;
        let Some(beat) = beat.upgrade() else { return };
        let (holds, sessions): (Vec<String>, Vec<String>) =
            beat.had().holds.clone().into_iter().unzip();
        let keepers: Vec<String> = beat.had().keepers.iter().cloned().collect();
        drop(beat);
        if let Err(trouble) = renew_once(&heart, lease_ms, &holds, &sessions, &keepers).await {
            // If it stays so, the next line that is written says who took the session over.
            tracing::warn!(
                reason = trouble.into_reason(),
                "leases of sessions could not be renewed"
            );
        }
    }
}

async fn renew_once(
    heart: &ConnectionPool,
    lease_ms: u64,
    holds: &[String],
    sessions: &[String],
    keepers: &[String],
) -> Result<(), QueryError> {
    let lease_ms = lease_ms as f64;
    if !holds.is_empty() {
        let statement = "update @.sessions set expires_at = clock_timestamp() \
                         + $3 * interval '1 millisecond' where id = any($1) and hold = any($2)";
        let values = [
            (&sessions as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT_ARRAY),
            (&holds, Type::TEXT_ARRAY),
            (&lease_ms, Type::FLOAT8),
        ];
        heart.run(statement, &values).await?;
    }
    if !keepers.is_empty() {
        let statement = "update @.letters set expires_at = clock_timestamp() \
                         + $2 * interval '1 millisecond' where keeper = any($1)";
        let values = [
            (&keepers as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT_ARRAY),
            (&lease_ms, Type::FLOAT8),
        ];
        heart.run(statement, &values).await?;
    }
    Ok(())
}
