//! How a turn goes, for whoever compares the engines of a slot.

use std::mem;
use std::time::Duration;

use super::Turn;
use crate::canary::figures::TurnFigures;
use crate::compaction::{CompactionOutcome, Verdict};
use crate::request::Shaped;
use crate::swap::Lease;

impl Turn<'_> {
    /// A turn that outlives the time its engine had to finish goes on with the one that serves now.
    pub(super) fn renew_lease(&mut self) {
        if self.slot.is_retired() {
            self.report();
            let Lease { slot, watch } = self.shared.slots.lease(self.family);
            let engine = slot.configured();
            tracing::warn!(engine, "a long turn goes on with another engine");
            (self.slot, self.watch) = (slot, watch);
        }
    }

    /// A request was shaped.
    pub(super) fn count_shaped(&mut self, shaped: &Shaped) {
        let figures = &mut self.figures;
        let compacting: Duration = shaped.compactions.iter().map(|outcome| outcome.took).sum();
        let took = shaped.took.saturating_sub(compacting);
        figures.engine_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        figures.repairs += shaped.lawful.repairs.len() as u64;
        figures.fallbacks += u64::from(shaped.fallback.is_some());
    }

    /// Compactions were tried.
    pub(super) fn count_compacted(&mut self, outcomes: &[CompactionOutcome]) {
        for outcome in outcomes {
            match outcome.verdict {
                Verdict::Applied => {
                    self.figures.compactions += 1;
                    if let Some(survival) = &outcome.survival {
                        self.figures.survival.add(survival);
                    }
                }
                Verdict::Rejected { .. } => self.figures.rejected += 1,
                Verdict::NotTried { .. } => {}
            }
        }
    }

    /// The turn is over.
    pub(crate) fn ended(&mut self, failed: bool) {
        self.figures.turns += 1;
        self.figures.failed_turns += u64::from(failed);
        self.report();
    }

    /// Tells whoever wants to know how it went so far.
    pub(crate) fn report(&mut self) {
        let figures = mem::take(&mut self.figures);
        let Some(watch) = &self.watch else { return };
        let session = self.conversation.reference().id.clone();
        let at_ms = self.shared.clock.now_ms();
        let figures = TurnFigures { session, at_ms, ..figures };
        self.shared.slots.measured(watch, &self.slot, figures);
    }
}
