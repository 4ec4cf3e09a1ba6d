//! A compaction that is worked out before it is needed.
//!
//! ```text
//!  full enough, none there ─► PrecomputeJob ─► engine.compact on a snapshot ─► kept in memory
//!                                                                        │ a compaction is needed
//!                                                                        ▼
//!                          the transcript still begins with the snapshot? ─ no ─► dropped
//!                                                                        │ yes
//!                                      plan + keep(what came since) ─► invariants ─► applied at once
//! ```

use std::sync::Arc;

use ctxhost_engine_api::{CompactRequest, Compaction, Transcript};

use crate::target::Budget;
use ctxhost_engine::{ActiveEngine, EngineAnswer, EngineSet, SlotError};

/// An engine that had nothing to compact is asked again when the transcript is so many times as large.
const RETRY_GROWTH: f64 = 1.1;

/// What has been worked out for a context.
#[derive(Debug, Default)]
pub(crate) struct PrecomputeState {
    compaction: Option<PrecomputedCompaction>,
    /// The epoch and the size for which nothing came of it.
    declined: Option<(u64, u64)>,
}

impl PrecomputeState {
    /// Whether there is none yet, and the engine has not just declined to make one.
    pub(crate) fn needs_job(&self, view: &Transcript) -> bool {
        let is_declined = self.declined.is_some_and(|(epoch, tokens)| {
            epoch == view.epoch() && (view.total_tokens() as f64) < tokens as f64 * RETRY_GROWTH
        });
        self.compaction.is_none() && !is_declined
    }

    /// Nothing came of a job.
    pub(crate) fn decline(&mut self, job: &PrecomputeJob) {
        self.declined = Some((job.view.epoch(), job.view.total_tokens()));
    }

    /// Keeps what came of a job.
    pub(crate) fn store(&mut self, job: &PrecomputeJob, served: EngineAnswer<Compaction>) {
        self.compaction = Some(PrecomputedCompaction {
            served,
            serving: job.engine.serving(),
            epoch: job.view.epoch(),
            entries: job.entries(),
        });
    }

    /// Drops what does not hold any more; answers of how many entries it was.
    pub(crate) fn discard_outdated(
        &mut self,
        view: &Transcript,
        serving: &EngineSet,
    ) -> Option<u64> {
        self.compaction.take_if(|it| !it.is_current(view, serving)).map(|it| it.entries)
    }

    /// Takes what was worked out, where it still holds; what does not is dropped.
    pub(crate) fn take(
        &mut self,
        view: &Transcript,
        serving: &EngineSet,
    ) -> Option<EngineAnswer<Compaction>> {
        let compaction = self.compaction.take()?;
        compaction.is_current(view, serving).then(|| compaction.extended_to(view))
    }
}

/// A compaction that waits until it is needed.
#[derive(Debug)]
struct PrecomputedCompaction {
    served: EngineAnswer<Compaction>,
    serving: EngineSet,
    epoch: u64,
    entries: u64,
}

impl PrecomputedCompaction {
    /// Whether the live transcript still begins with what it was worked out from. Within an epoch a transcript only
    /// grows.
    fn is_current(&self, view: &Transcript, serving: &EngineSet) -> bool {
        self.epoch == view.epoch() && self.entries <= view.len() as u64 && self.serving == *serving
    }

    /// The same for all entries that are there by now.
    fn extended_to(mut self, view: &Transcript) -> EngineAnswer<Compaction> {
        if let Compaction::Plan(plan) = &mut self.served.value {
            plan.keep(self.entries..view.len() as u64);
        }
        self.served
    }
}

/// A compaction to work out while the context is not needed.
#[derive(Debug)]
pub struct PrecomputeJob {
    pub(crate) view: Transcript,
    pub(crate) engine: Arc<ActiveEngine>,
    pub(crate) budget: Budget,
    pub(crate) request: CompactRequest,
}

impl PrecomputeJob {
    /// Entries of the snapshot.
    pub fn entries(&self) -> u64 {
        self.view.len() as u64
    }

    /// Asks the engine. The context is not needed meanwhile, but no other call of its session may be under way.
    ///
    /// # Errors
    ///
    /// [`SlotError`] of the engine.
    pub async fn run(&self) -> Result<EngineAnswer<Compaction>, SlotError> {
        self.engine.compact(&self.view, self.request.clone()).await
    }
}
