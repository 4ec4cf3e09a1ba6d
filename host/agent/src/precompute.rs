//! Compactions worked out ahead, while nobody waits for them. What comes of them, the context keeps.
//!
//! The lane of the session is held meanwhile, since the engine may have one call of a session at a time; whoever wants it
//! does not wait, because the work is given up the moment somebody comes.

#[cfg(test)]
mod tests;

use tokio::sync::watch;

use super::event::EventKind;
use super::runtime::{RuntimeState, SessionCell};
use super::session_locks::SessionLock;
use super::turn::AgentTurn;
use ctxhost_context::PrecomputeJob;
use ctxhost_engine_api::Trigger;

impl AgentTurn {
    /// What to work out after this turn, if anything.
    pub(super) async fn precompute(&mut self) -> Option<PrecomputeJob> {
        if let Some(entries) = self.guard.active_mut().context.discard_outdated_precompute() {
            let why = format!("of {entries} entries that are not the same any more");
            self.guard.emit(EventKind::PrecomputeDropped { why });
        }
        let (target, _) = self.target(Trigger::Threshold).await;
        self.guard.active_mut().context.precompute_job(&target)
    }
}

impl RuntimeState {
    /// Works a compaction out until it is done or somebody wants the session.
    pub(super) async fn run_precompute(
        &self,
        held: &SessionCell,
        lane: &SessionLock,
        job: PrecomputeJob,
    ) {
        let answer = lane.yield_permit_during(async {
            tokio::select! {
                biased;
                () = held.waiters.wait_for_waiter() => None,
                () = self.shutdown.cancelled() => None,
                answer = job.run() => Some(answer),
            }
        });
        let what = match answer.await {
            None => EventKind::PrecomputeDropped { why: "it was given up for a turn".into() },
            Some(answer) => {
                let kept = held.active.lock().await.context.store_precomputed(&job, answer);
                match kept {
                    Ok(engine) => EventKind::Precomputed { engine, entries: job.entries() },
                    Err(why) => EventKind::PrecomputeDropped { why },
                }
            }
        };
        self.emit(lane.session_id(), what);
    }
}

/// Who waits for a session, so that work that can wait gives way.
#[derive(Debug, Default)]
pub(super) struct WaiterCount(watch::Sender<usize>);

impl WaiterCount {
    /// One more, as long as the guard lives.
    pub(super) fn add_waiter(&self) -> impl Drop + '_ {
        self.0.send_modify(|waiting| *waiting += 1);
        WaiterGuard(&self.0)
    }

    async fn wait_for_waiter(&self) {
        // The sender lives as long as this does.
        let _ = self.0.subscribe().wait_for(|waiting| *waiting > 0).await;
    }
}

struct WaiterGuard<'a>(&'a watch::Sender<usize>);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
