//! What all contexts of a host share: the invariants' numbers, the budget's, and who is asked about compactions.

use std::sync::Arc;

use crate::hook::CompactionHook;
use crate::session_directory::SessionDirectory;
use ctxhost_blobs::BlobDirs;
use ctxhost_config::{AccountingSettings, BudgetSettings, Config};
use ctxhost_engine::HostClock;
use ctxhost_invariants::InvariantSettings;
use ctxhost_retention::QualityGate;

/// What all contexts of a host share.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// The numbers of the invariants.
    pub invariants: InvariantSettings,
    /// The least that a compaction has to keep.
    pub quality_gate: QualityGate,
    /// What of a window is held free.
    pub budget: BudgetSettings,
    /// How token counts are learned from.
    pub accounting: AccountingSettings,
    /// The share of the budget from which on a compaction is worked out before it is needed; 0 for never.
    pub precompute_share: f64,
    /// Who wants to know of compactions, in the order they are asked.
    pub hooks: Vec<Arc<dyn CompactionHook>>,
    /// What engines may ask about sessions: give it to them when they are opened.
    pub sessions: Arc<SessionDirectory>,
    /// The time that engines are given and sessions are stamped with.
    pub clock: HostClock,
}

impl ContextSettings {
    /// As a config says, on the system's clock, without hooks.
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
