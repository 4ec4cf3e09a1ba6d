//! Compactions worked out ahead, while nobody waits for them. What comes of them, the context keeps.
//!
//! The lane of the session is held meanwhile, since the engine may have one call of a session at a time; whoever wants it
//! does not wait, because the work is given up the moment somebody comes.

#[cfg(test)]
mod tests;

use tokio::sync::watch;

use super::agent::{HeldSession, Shared};
use super::event::What;
use super::lane::LaneGuard;
use super::turn::Turn;
use ctxhost_context::PrecomputeJob;
use ctxhost_engine_api::Trigger;

impl Turn {
    /// What to work out after this turn, if anything.
    pub(super) async fn precompute(&mut self) -> Option<PrecomputeJob> {
        if let Some(entries) = self.guard.open().context.drop_outdated() {
            let why = format!("of {entries} entries that are not the same any more");
            self.guard.tell(What::PrecomputeDropped { why });
        }
        let (target, _) = self.target(Trigger::Threshold).await;
        self.guard.open().context.precompute(&target)
    }
}

impl Shared {
    /// Works a compaction out until it is done or somebody wants the session.
    pub(super) async fn work_out(&self, held: &HeldSession, lane: &LaneGuard, job: PrecomputeJob) {
        let answer = lane.during_model_call(async {
            tokio::select! {
                biased;
                () = held.waiting.for_somebody() => None,
                () = self.closing.cancelled() => None,
                answer = job.run() => Some(answer),
            }
        });
        let what = match answer.await {
            None => What::PrecomputeDropped { why: "it was given up for a turn".into() },
            Some(answer) => {
                let kept = held.open.lock().await.context.keep_precomputed(&job, answer);
                match kept {
                    Ok(engine) => What::Precomputed { engine, entries: job.entries() },
                    Err(why) => What::PrecomputeDropped { why },
                }
            }
        };
        self.tell(lane.session_id(), what);
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
