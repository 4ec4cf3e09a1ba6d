//! What an engine says of itself: how often it compacted, and by which settings.

use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_engine_api::{Compaction, EngineStatus, Result};
use serde::Serialize;

/// Compactions since the engine was created, over all sessions.
#[derive(Debug, Default)]
pub struct Compactions(AtomicU64);

impl Compactions {
    /// Counts an answer that is a plan.
    pub fn record(&self, answer: &Result<Compaction>) {
        if matches!(answer, Ok(Compaction::Plan(_))) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The count and the settings it came about with.
    pub fn status(&self, settings: &impl Serialize) -> EngineStatus {
        EngineStatus {
            summary: String::new(),
            compactions: self.0.load(Ordering::Relaxed),
            details: serde_json::to_value(settings).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::{EngineError, Plan};

    use super::*;

    #[test]
    fn plans_alone_count() {
        let compactions = Compactions::default();
        compactions.record(&Ok(Compaction::Delegate));
        compactions.record(&Err(EngineError::failed("no")));
        compactions.record(&Ok(Compaction::Plan(Plan::default())));
        let status = compactions.status(&"settings");
        assert_eq!((status.compactions, status.details), (1, "settings".into()));
    }
}
