//! Counters for the status of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Action, Compaction, EngineStatus, Plan, Result};
use ctxhost_engine_kit::summariser::EXTRACTIVE;
use serde_json::json;

use crate::compaction;
use crate::settings::Settings;

/// Counters over all sessions.
#[derive(Debug, Default)]
pub(crate) struct LegacyCounters {
    requests: AtomicU64,
    /// Entries replaced in the newest request of any session.
    replaced: AtomicU64,
    compactions: AtomicU64,
    model_summaries: AtomicU64,
    extractive_summaries: AtomicU64,
    failed: AtomicU64,
}

impl LegacyCounters {
    /// Counts an assembled request.
    pub(crate) fn record_plan(&self, plan: &Plan) {
        let is_replaced = |action: &Action| {
            matches!(action, Action::ReplaceText { .. } | Action::ReplaceRaw { .. })
        };
        let replaced = plan.ops.iter().filter(|op| is_replaced(&op.action)).count();
        self.requests.fetch_add(1, Ordering::Relaxed);
        // The newest value, not a sum: every request replaces the same entries again.
        self.replaced.store(replaced as u64, Ordering::Relaxed);
    }

    /// Counts the outcome of a compaction.
    pub(crate) fn record_compaction(&self, answer: &Result<Compaction>) {
        let plan = match answer {
            Ok(Compaction::Plan(plan)) => plan,
            Ok(_) => return,
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        self.compactions.fetch_add(1, Ordering::Relaxed);
        for writer in compaction::summary_writers(plan) {
            let count = if writer == EXTRACTIVE {
                &self.extractive_summaries
            } else {
                &self.model_summaries
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The status with counters and settings.
    pub(crate) fn status(&self, settings: &Settings) -> EngineStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (requests, compactions) = (count(&self.requests), count(&self.compactions));
        EngineStatus {
            summary: format!(
                "{} requests, {} compactions, {} summaries by a model and {} without",
                group_thousands(requests),
                group_thousands(compactions),
                group_thousands(count(&self.model_summaries)),
                group_thousands(count(&self.extractive_summaries)),
            ),
            compactions,
            details: json!({
                "requests": requests,
                "replacedNow": count(&self.replaced),
                "compactions": compactions,
                "compactionsFailed": count(&self.failed),
                "summariesByModel": count(&self.model_summaries),
                "summariesWithout": count(&self.extractive_summaries),
                "settings": settings,
            }),
        }
    }
}
