//! Compactions worked out ahead, while nobody waits for them.
//!
//! ```text
//!  turn ends ─► full enough, none owed ─► engine.compact on a snapshot ─► kept in memory
//!                                          │ somebody comes                 │ a compaction is needed
//!                                          ▼                                ▼
//!                                        given up         history begins with the snapshot? ─ no ─► thrown away
//!                                                                           │ yes
//!                                             plan + keep(what came since) ─► law ─► applied at once
//! ```
//!
//! The lane of the session is held meanwhile, since the engine may have one call of a session at a time;
//! whoever wants it does not wait, because the work is given up the moment somebody comes.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ctxhost_engine_api::{CompactRequest, Compaction, ModelRef, Transcript, Trigger};
use tokio::sync::watch;

use super::agent::{HeldSession, Shared};
use super::compaction;
use super::conversation::Conversation;
use super::event::What;
use super::lane::LaneGuard;
use super::request::Shaper;
use super::turn::{Budget, Turn};
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::{Served, Serving};

/// An engine that had nothing to compact is asked again when the transcript is so many times as large.
const GROWN: f64 = 1.1;

/// What a conversation has been worked out ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    prepared: Option<Prepared>,
    /// The epoch and the size for which nothing came of it.
    declined: Option<(u64, u64)>,
}

/// A compaction that waits until it is needed.
#[derive(Debug)]
struct Prepared {
    served: Served<Compaction>,
    serving: Serving,
    epoch: u64,
    entries: u64,
}

impl Prepared {
    /// Whether the live transcript still begins with what it was worked out from. Within an epoch a
    /// transcript only grows.
    fn holds(&self, view: &Transcript, serving: &Serving) -> bool {
        self.epoch == view.epoch() && self.entries <= view.len() as u64 && self.serving == *serving
    }

    /// The same for all that has been said by now.
    fn extended(mut self, view: &Transcript) -> Served<Compaction> {
        if let Compaction::Plan(plan) = &mut self.served.value {
            plan.keep(self.entries..view.len() as u64);
        }
        self.served
    }
}

/// Takes what was worked out ahead, where it still holds; what does not is thrown away.
pub(super) fn take(
    conversation: &mut Conversation,
    view: &Transcript,
    shaper: &Shaper<'_>,
) -> Option<Served<Compaction>> {
    let prepared = conversation.ahead.prepared.take()?;
    let holds = prepared.holds(view, &shaper.slot.serving());
    let served = holds.then(|| prepared.extended(view))?;
    let before_tokens = view.total_tokens();
    compaction::judge(shaper, view, &served, before_tokens).is_ok().then_some(served)
}

/// What is to be worked out.
#[derive(Debug)]
pub(super) struct Job {
    view: Transcript,
    slot: Arc<ActiveEngine>,
    model: ModelRef,
    budget: Budget,
    request: CompactRequest,
}

impl Turn<'_> {
    /// What to work out ahead after this turn, if anything.
    pub(super) async fn job_ahead(&mut self) -> Option<Job> {
        let share = self.shared.compaction.precompute_share;
        let now_ms = self.shared.clock.now_ms();
        if share <= 0.0 || self.conversation.limits.is_open(now_ms).is_some() {
            return None;
        }
        let (view, budget) = (self.conversation.view(), self.budget().await);
        let is_full = view.total_tokens() as f64 > share * budget.tokens as f64;
        if !is_full || !self.is_worth_while(&view) {
            return None;
        }
        let model = self.model_ref();
        let request = CompactRequest {
            session: self.conversation.reference().clone(),
            budget: self.conversation.anchors().compaction_budget(budget.tokens, &self.shared.law),
            reserve_tokens: budget.reserve_tokens,
            current_tokens: view.total_tokens(),
            trigger: Trigger::Threshold,
            // Every threshold lies ahead as yet.
            force: true,
            model: model.clone(),
            attempt: 1,
            now_ms,
            ..CompactRequest::default()
        };
        Some(Job { view, slot: self.slot.clone(), model, budget, request })
    }

    /// Whether there is none yet, and the engine has not just declined to make one.
    fn is_worth_while(&mut self, view: &Transcript) -> bool {
        let serving = self.slot.serving();
        let ahead = &mut self.conversation.ahead;
        if let Some(prepared) = ahead.prepared.take_if(|prepared| !prepared.holds(view, &serving)) {
            let why = format!("of {} entries that are not the same any more", prepared.entries);
            self.tell(What::PrecomputeDropped { why });
        }
        let ahead = &self.conversation.ahead;
        let is_declined = ahead.declined.is_some_and(|(epoch, tokens)| {
            epoch == view.epoch() && (view.total_tokens() as f64) < tokens as f64 * GROWN
        });
        ahead.prepared.is_none() && !is_declined
    }
}

impl Shared {
    /// Works a compaction out until it is done or somebody wants the session.
    pub(super) async fn work_out(&self, held: &HeldSession, lane: &LaneGuard, job: Job) {
        let asking = job.slot.compact(&job.view, job.request.clone());
        let answer = lane.during_model_call(async {
            tokio::select! {
                biased;
                () = held.waiting.for_somebody() => None,
                () = self.closing.cancelled() => None,
                answer = asking => Some(answer),
            }
        });
        let what = match answer.await {
            None => What::PrecomputeDropped { why: "it was given up for a turn".into() },
            Some(answer) => {
                let mut open = held.open.lock().await;
                let answer = answer.map_err(|error| error.to_string());
                let kept =
                    answer.and_then(|served| self.keep(&mut open.conversation, &job, served));
                match kept {
                    Ok(engine) => What::Precomputed { engine, entries: job.view.len() as u64 },
                    Err(why) => {
                        let tokens = job.view.total_tokens();
                        open.conversation.ahead.declined = Some((job.view.epoch(), tokens));
                        What::PrecomputeDropped { why }
                    }
                }
            }
        };
        self.tell(lane.session_id(), what);
    }

    /// Keeps an answer that the law would let through now; the id of its engine.
    fn keep(
        &self,
        conversation: &mut Conversation,
        job: &Job,
        served: Served<Compaction>,
    ) -> Result<String, String> {
        let shaper = self.shaper(&job.slot, &job.model, job.budget);
        let before_tokens = job.view.total_tokens();
        let lawful = compaction::judge(&shaper, &job.view, &served, before_tokens)
            .map_err(|rejection| rejection.reason)?;
        compaction::weigh(&shaper, &job.view, &lawful).1?;
        let engine = served.engine.clone();
        conversation.ahead.prepared = Some(Prepared {
            served,
            serving: job.slot.serving(),
            epoch: job.view.epoch(),
            entries: job.view.len() as u64,
        });
        Ok(engine)
    }
}

/// Who waits for a session, so that work that can wait gives way.
#[derive(Debug, Default)]
pub(super) struct Waiting(watch::Sender<usize>);

impl Waiting {
    /// One more, as long as the guard lives.
    pub(super) fn begin(&self) -> impl Drop + '_ {
        self.0.send_modify(|waiting| *waiting += 1);
        OneWaiting(&self.0)
    }

    async fn for_somebody(&self) {
        // The sender lives as long as this does.
        let _ = self.0.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

struct OneWaiting<'a>(&'a watch::Sender<usize>);

impl Drop for OneWaiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
