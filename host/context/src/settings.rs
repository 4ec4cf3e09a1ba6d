//! The settings that all contexts of a host share.

use std::sync::Arc;

use crate::hook::CompactionHook;
use crate::session_directory::SessionDirectory;
use ctxhost_blobs::BlobDirs;
use ctxhost_config::{AccountingSettings, BudgetSettings, Config};
use ctxhost_engine::HostClock;
use ctxhost_invariants::InvariantSettings;
use ctxhost_retention::QualityGate;

/// The settings that all contexts of a host share.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// The settings of the invariants.
    pub invariants: InvariantSettings,
    /// The minimum retention of a compaction.
    pub quality_gate: QualityGate,
    /// The reserve of a window.
    pub budget: BudgetSettings,
    /// How token counts are learned.
    pub accounting: AccountingSettings,
    /// The share of the budget above which a compaction is precomputed; 0 for never.
    pub precompute_share: f64,
    /// The compaction hooks, in the order of their calls.
    pub hooks: Vec<Arc<dyn CompactionHook>>,
    /// The directory through which engines query sessions; pass it when they are opened.
    pub sessions: Arc<SessionDirectory>,
    /// The clock for engine requests and session records.
    pub clock: HostClock,
}

impl ContextSettings {
    /// The settings of a config, with the system clock and without hooks.
    pub fn from_config(config: &Config) -> ContextSettings {
        ContextSettings {
            invariants: config.invariants.clone(),
            quality_gate: config.compaction.gate.clone(),
            budget: config.budget.clone(),
            accounting: config.accounting.clone(),
            precompute_share: config.compaction.precompute_share,
            hooks: Vec::new(),
            sessions: Arc::new(SessionDirectory::new(BlobDirs::default())),
            clock: HostClock::default(),
        }
    }
}
