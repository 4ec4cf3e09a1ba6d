//! Status of an engine: compaction requests, the number of compactions, and the settings.

use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Compaction, EngineStatus, Plan, Result};
use serde::Serialize;

/// Sets the reason for a compaction in a plan: `1,200 tokens are over the threshold of 1,000`.
pub fn request_compaction(plan: &mut Plan, words: &str, limit_tokens: u64) {
    plan.extras.compaction_wanted = Some(format!(
        "{} tokens are {words} of {}",
        group_thousands(plan.estimated_tokens),
        group_thousands(limit_tokens)
    ));
}

/// Number of compactions since the engine was created, over all sessions.
#[derive(Debug, Default)]
pub struct CompactionCounter(AtomicU64);

impl CompactionCounter {
    /// Counts a result that is a plan.
    pub fn record(&self, answer: &Result<Compaction>) {
        if matches!(answer, Ok(Compaction::Plan(_))) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The status with count and settings.
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
    use ctxhost_engine_api::EngineError;

    use super::*;

    #[test]
    fn a_requested_compaction_has_a_reason() {
        let mut plan = Plan { estimated_tokens: 1_200, ..Plan::default() };
        request_compaction(&mut plan, "over the threshold", 1_000);
        let why = plan.extras.compaction_wanted.unwrap();
        assert_eq!(why, "1,200 tokens are over the threshold of 1,000");
    }

    #[test]
    fn plans_alone_count() {
        let compactions = CompactionCounter::default();
        compactions.record(&Ok(Compaction::Delegate));
        compactions.record(&Err(EngineError::failed("no")));
        compactions.record(&Ok(Compaction::Plan(Plan::default())));
        let status = compactions.status(&"settings");
        assert_eq!((status.compactions, status.details), (1, "settings".into()));
    }
}
