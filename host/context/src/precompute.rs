//! Precomputed compactions.
//!
//! ```text
//!  full enough, none stored ─► PrecomputeJob ─► engine.compact on a snapshot ─► stored in memory
//!                                                                        │ a compaction is needed
//!                                                                        ▼
//!                          the transcript still starts with the snapshot? ─ no ─► discarded
//!                                                                        │ yes
//!                                      plan + keep(newer entries) ─► invariants ─► applied at once
//! ```

use std::sync::Arc;

use ctxhost_engine_api::{CompactRequest, Compaction, Transcript};

use crate::target::Budget;
use ctxhost_engine::{ActiveEngine, EngineAnswer, EngineSet, SlotError};

/// After a failed job, the next one waits until the transcript has grown by this factor.
const RETRY_GROWTH: f64 = 1.1;

/// The precomputed compaction of a context.
#[derive(Debug, Default)]
pub(crate) struct PrecomputeState {
    compaction: Option<PrecomputedCompaction>,
    /// The epoch and the size of the last failed job.
    declined: Option<(u64, u64)>,
}

impl PrecomputeState {
    /// Whether there is none, and the last job did not fail at about this size.
    pub(crate) fn needs_job(&self, view: &Transcript) -> bool {
        let is_declined = self.declined.is_some_and(|(epoch, tokens)| {
            epoch == view.epoch() && (view.total_tokens() as f64) < tokens as f64 * RETRY_GROWTH
        });
        self.compaction.is_none() && !is_declined
    }

    /// Records a failed job.
    pub(crate) fn decline(&mut self, job: &PrecomputeJob) {
        self.declined = Some((job.view.epoch(), job.view.total_tokens()));
    }

    /// Stores the result of a job.
    pub(crate) fn store(&mut self, job: &PrecomputeJob, answer: EngineAnswer<Compaction>) {
        self.compaction = Some(PrecomputedCompaction {
            answer,
            serving: job.engine.serving(),
            epoch: job.view.epoch(),
            entries: job.entries(),
        });
    }

    /// Discards an outdated compaction; returns the number of entries that it covered.
    pub(crate) fn discard_outdated(
        &mut self,
        view: &Transcript,
        serving: &EngineSet,
    ) -> Option<u64> {
        self.compaction
            .take_if(|stored| !stored.is_current(view, serving))
            .map(|stored| stored.entries)
    }

    /// Takes the compaction if it is current; discards it otherwise.
    pub(crate) fn take(
        &mut self,
        view: &Transcript,
        serving: &EngineSet,
    ) -> Option<EngineAnswer<Compaction>> {
        let compaction = self.compaction.take()?;
        compaction.is_current(view, serving).then(|| compaction.extended_to(view))
    }
}

/// A stored compaction.
#[derive(Debug)]
struct PrecomputedCompaction {
    answer: EngineAnswer<Compaction>,
    serving: EngineSet,
    epoch: u64,
    entries: u64,
}

impl PrecomputedCompaction {
    /// Whether the live transcript still starts with its snapshot. Within an epoch a transcript only grows.
    fn is_current(&self, view: &Transcript, serving: &EngineSet) -> bool {
        self.epoch == view.epoch() && self.entries <= view.len() as u64 && self.serving == *serving
    }

    /// Extends the plan to keep newer entries.
    fn extended_to(mut self, view: &Transcript) -> EngineAnswer<Compaction> {
        if let Compaction::Plan(plan) = &mut self.answer.value {
            // Entries that came after the snapshot stay verbatim.
            plan.keep(self.entries..view.len() as u64);
        }
        self.answer
    }
}

/// A compaction to compute while the context is not in use.
#[derive(Debug)]
pub struct PrecomputeJob {
    pub(crate) view: Transcript,
    pub(crate) engine: Arc<ActiveEngine>,
    pub(crate) budget: Budget,
    pub(crate) request: CompactRequest,
}

impl PrecomputeJob {
    /// The number of entries in the snapshot.
    pub fn entries(&self) -> u64 {
        self.view.len() as u64
    }

    /// Calls the engine. The context is free meanwhile, but the engine must get no other call of its session.
    pub async fn run(&self) -> Result<EngineAnswer<Compaction>, SlotError> {
        self.engine.compact(&self.view, self.request.clone()).await
    }
}
