//! Renews the leases and inboxes of this machine.

use std::collections::{HashMap, HashSet};
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::types::Type;

use super::pool::{ConnectionPool, QueryError};

/// Renewals per lease time, so that two may fail.
const RENEWALS: u32 = 3;

/// What has to be renewed.
#[derive(Debug, Default)]
pub(super) struct LeaseHeartbeat {
    state: Mutex<HeartbeatState>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    /// Sessions by lease.
    leases: HashMap<String, String>,
    /// Handles with queued messages.
    inboxes: HashSet<String>,
}

impl LeaseHeartbeat {
    /// Adds a lease that is held or requested.
    pub(super) fn add_lease(&self, lease_name: &str, session: &str) {
        self.state.lock().leases.insert(lease_name.to_owned(), session.to_owned());
    }

    /// Removes a lease.
    pub(super) fn remove_lease(&self, lease_name: &str) {
        self.state.lock().leases.remove(lease_name);
    }

    /// Adds a handle with queued messages.
    pub(super) fn add_inbox(&self, handle_name: &str) {
        self.state.lock().inboxes.insert(handle_name.to_owned());
    }

    /// Removes a handle; returns whether it had queued messages.
    pub(super) fn remove_inbox(&self, handle_name: &str) -> bool {
        self.state.lock().inboxes.remove(handle_name)
    }
}

/// Renews until the store is closed.
pub(super) async fn renew(heartbeat: Weak<LeaseHeartbeat>, pool: ConnectionPool, lease_ms: u64) {
    // Several renewals fit into a lease, so one that fails costs nothing.
    let pause = Duration::from_millis(lease_ms) / RENEWALS;
    loop {
        tokio::time::sleep(pause).await;
        let Some(heartbeat) = heartbeat.upgrade() else { return };
        // One statement for all sessions: a gateway may hold thousands.
        let (leases, sessions): (Vec<String>, Vec<String>) =
            heartbeat.state.lock().leases.clone().into_iter().unzip();
        let inboxes: Vec<String> = heartbeat.state.lock().inboxes.iter().cloned().collect();
        // Before the network is used: this task must not be the last owner.
        drop(heartbeat);
        if let Err(error) = renew_once(&pool, lease_ms, &leases, &sessions, &inboxes).await {
            // If a lease is lost, the next append reports it.
            tracing::warn!(reason = error.into_reason(), "cannot renew leases of sessions");
        }
    }
}

async fn renew_once(
    pool: &ConnectionPool,
    lease_ms: u64,
    leases: &[String],
    sessions: &[String],
    inboxes: &[String],
) -> Result<(), QueryError> {
    let lease_ms = lease_ms as f64;
    if !leases.is_empty() {
        let statement = "update @.sessions set expires_at = clock_timestamp() \
                         + $3 * interval '1 millisecond' where id = any($1) and hold = any($2)";
        let values = [
            (&sessions as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT_ARRAY),
            (&leases, Type::TEXT_ARRAY),
            (&lease_ms, Type::FLOAT8),
        ];
        pool.run(statement, &values).await?;
    }
    if !inboxes.is_empty() {
        let statement = "update @.letters set expires_at = clock_timestamp() \
                         + $2 * interval '1 millisecond' where keeper = any($1)";
        let values = [
            (&inboxes as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT_ARRAY),
            (&lease_ms, Type::FLOAT8),
        ];
        pool.run(statement, &values).await?;
    }
    Ok(())
}
