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

use ctxhost_engine_api::{CompactRequest, Compaction, Transcript, Trigger};

use crate::compact::CompactionRequest;
use crate::context::Context;
use crate::target::{Budget, Target};
use ctxhost_engine::{ActiveEngine, Served, Serving, SlotError};

/// An engine that had nothing to compact is asked again when the transcript is so many times as large.
const GROWN: f64 = 1.1;

/// What has been worked out for a context.
#[derive(Debug, Default)]
pub(crate) struct Precomputed {
    compaction: Option<PrecomputedCompaction>,
    /// The epoch and the size for which nothing came of it.
    declined: Option<(u64, u64)>,
}

/// A compaction that waits until it is needed.
#[derive(Debug)]
struct PrecomputedCompaction {
    served: Served<Compaction>,
    serving: Serving,
    epoch: u64,
    entries: u64,
}

impl PrecomputedCompaction {
    /// Whether the live transcript still begins with what it was worked out from. Within an epoch a transcript only
    /// grows.
    fn holds(&self, view: &Transcript, serving: &Serving) -> bool {
        self.epoch == view.epoch() && self.entries <= view.len() as u64 && self.serving == *serving
    }

    /// The same for all entries that are there by now.
    fn extended(mut self, view: &Transcript) -> Served<Compaction> {
        if let Compaction::Plan(plan) = &mut self.served.value {
            plan.keep(self.entries..view.len() as u64);
        }
        self.served
    }
}

/// A compaction to work out while the context is not needed.
#[derive(Debug)]
pub struct PrecomputeJob {
    view: Transcript,
    engine: Arc<ActiveEngine>,
    budget: Budget,
    request: CompactRequest,
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
    pub async fn run(&self) -> Result<Served<Compaction>, SlotError> {
        self.engine.compact(&self.view, self.request.clone()).await
    }
}

impl Context {
    /// What to work out now, if anything.
    pub fn precompute(&mut self, target: &Target) -> Option<PrecomputeJob> {
        let share = self.settings.precompute_share;
        let now_ms = self.settings.clock.now_ms();
        if share <= 0.0 || self.limits.is_open(now_ms).is_some() {
            return None;
        }
        let (view, budget) = (self.view(), self.budget(target));
        let is_full = view.total_tokens() as f64 > share * budget.tokens as f64;
        let is_declined = self.precomputed.declined.is_some_and(|(epoch, tokens)| {
            epoch == view.epoch() && (view.total_tokens() as f64) < tokens as f64 * GROWN
        });
        if !is_full || is_declined || self.precomputed.compaction.is_some() {
            return None;
        }
        let model = self.model_ref(target);
        let request = CompactionRequest {
            model: &model,
            budget,
            trigger: Trigger::Threshold,
            attempt: 1,
            focus: None,
        };
        // Every threshold lies ahead as yet.
        let request = CompactRequest { force: true, ..self.compact_request(&view, request) };
        Some(PrecomputeJob { view, engine: self.engine.clone(), budget, request })
    }

    /// Drops what was worked out where the transcript or the engine is another by now; answers of how many entries
    /// it was.
    pub fn drop_outdated(&mut self) -> Option<u64> {
        let (view, serving) = (self.view(), self.engine.serving());
        let compaction = &mut self.precomputed.compaction;
        compaction.take_if(|compaction| !compaction.holds(&view, &serving)).map(|it| it.entries)
    }

    /// Keeps the answer to a job that the invariants would let through now; the id of its engine.
    ///
    /// # Errors
    ///
    /// Why it is of no use; the engine is not asked again before the transcript has grown.
    pub fn keep_precomputed(
        &mut self,
        job: &PrecomputeJob,
        answer: Result<Served<Compaction>, SlotError>,
    ) -> Result<String, String> {
        let kept = answer.map_err(|error| error.to_string()).and_then(|served| {
            let checked = self.settings.check(&job.view, &served, job.budget);
            let lawful = checked.map_err(|rejection| rejection.reason)?;
            self.settings.weigh(&job.view, &lawful).1?;
            Ok(served)
        });
        let served = kept.inspect_err(|_| {
            self.precomputed.declined = Some((job.view.epoch(), job.view.total_tokens()));
        })?;
        let engine = served.engine.clone();
        self.precomputed.compaction = Some(PrecomputedCompaction {
            served,
            serving: job.engine.serving(),
            epoch: job.view.epoch(),
            entries: job.entries(),
        });
        Ok(engine)
    }

    /// Takes what was worked out, where it still holds; what does not is dropped.
    pub(crate) fn take_precomputed(
        &mut self,
        view: &Transcript,
        budget: Budget,
    ) -> Option<Served<Compaction>> {
        let compaction = self.precomputed.compaction.take()?;
        let holds = compaction.holds(view, &self.engine.serving());
        let served = holds.then(|| compaction.extended(view))?;
        self.settings.check(view, &served, budget).is_ok().then_some(served)
    }
}
