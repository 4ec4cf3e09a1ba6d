//! An engine goes: its turns end or are cut off, it is disposed of, its services are taken away.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use ctxhost_engine::ActiveEngine;

/// How often the leases of a slot that goes are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Lets a slot go once this is its last lease, or at the limit: what is under way then is cut off and
/// answered by the bundled engine, and the turn goes on with the engine that serves now.
pub(super) async fn drain(slot: Arc<ActiveEngine>, limit: Duration) {
    let id = slot.configured_id();
    let deadline = Instant::now() + limit;
    while Arc::strong_count(&slot) > 1 {
        if Instant::now() >= deadline {
            tracing::warn!(engine = id, ?limit, "its turns did not end in time and are cut off");
            slot.retire().await;
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
    slot.dispose().await;
    tracing::debug!(engine = id, "engine disposed");
}
