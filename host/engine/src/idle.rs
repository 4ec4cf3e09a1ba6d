//! Counts who may still call an engine: holders of it that are not idle.

use std::sync::Arc;

use super::active::ActiveEngine;

/// Marks one holder of an engine as idle until it is dropped: the holder takes an engine anew before it calls one.
#[derive(Clone, Debug)]
pub struct IdleMark {
    _mark: Arc<()>,
}

impl ActiveEngine {
    /// Marks one holder of this engine as idle.
    pub fn idle_mark(&self) -> IdleMark {
        IdleMark { _mark: self.idle_marks.clone() }
    }

    /// How many holders besides the caller may still call this engine.
    pub fn users(self: &Arc<Self>) -> usize {
        // In this order: a holder that is dropped in between counts as a user once more, never the other way round.
        let holders = Arc::strong_count(self);
        let idle = Arc::strong_count(&self.idle_marks) - 1;
        holders.saturating_sub(1 + idle)
    }
}
