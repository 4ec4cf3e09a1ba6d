//! Waits for the last user of a replaced engine and disposes of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use ctxhost_engine::ActiveEngine;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Disposes of an engine once nothing else may call it. At the limit its pending calls are cancelled and answered by
/// the bundled engine; those turns continue with the current engine.
pub(super) async fn drain(engine: Arc<ActiveEngine>, limit: Duration) {
    let id = engine.configured_id();
    let deadline = Instant::now() + limit;
    // Turns hold the engine in plain `Arc`s, which cannot be awaited, so the count is polled. Sessions between two turns
    // hold it too, but take the current engine before they call one.
    while engine.users() > 0 {
        if Instant::now() >= deadline {
            tracing::warn!(
                engine = id,
                ?limit,
                "a replaced engine is still in use (swap.drain_ms); its calls are cancelled"
            );
            engine.retire().await;
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
    engine.dispose().await;
    engine.release_previous();
    tracing::debug!(engine = id, "engine disposed");
}
