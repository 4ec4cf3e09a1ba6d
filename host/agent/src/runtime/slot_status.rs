//! What the context-engine slot of a running host does: the configured engine, the serving one, and the canary.

use serde::Serialize;

use super::Runtime;

/// The state of the slot in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotStatus {
    /// The ids of the current engines, as `mask+legacy`.
    pub configured: String,
    /// The ids of the engines that shape the next request of a session outside the canary.
    pub active: String,
    /// Why they differ, if an engine is in quarantine.
    pub reason: Option<String>,
    /// The running canary.
    pub canary: Option<CanaryStatus>,
}

/// A canary in a [`SlotStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CanaryStatus {
    /// Its engine.
    pub engine: String,
    /// Its share of new sessions, as `10%`.
    pub share: String,
}

impl Runtime {
    /// The state of the slot, read now.
    pub fn slot_status(&self) -> SlotStatus {
        let engines = &self.state.engines;
        let current = engines.current();
        let canary = engines.active_canary().map(|canary| CanaryStatus {
            engine: canary.engine.clone(),
            share: canary.share.to_string(),
        });
        SlotStatus {
            configured: current.configured_id(),
            active: current.serving_info().id,
            reason: current.quarantine_record().map(|record| record.to_string()),
            canary,
        }
    }
}
