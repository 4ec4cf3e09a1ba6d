//! Computes the next compaction in the background, after a turn.
//!
//! The session stays locked meanwhile, since an engine gets one call of a session at a time. The work is cancelled as
//! soon as a turn waits for the lock.

#[cfg(test)]
mod tests;

use crate::event::EventKind;
use crate::session_cell::SessionCell;
use crate::session_locks::SessionLock;
use crate::state::RuntimeState;
use crate::turn::agent_turn::AgentTurn;
use ctxhost_context::PrecomputeJob;
use ctxhost_engine_api::Trigger;

impl AgentTurn {
    /// The compaction to precompute after this turn, if any.
    pub(super) async fn precompute(&mut self) -> Option<PrecomputeJob> {
        if let Some(entries) = self.guard.active_mut().context.discard_outdated_precompute() {
            let why = match entries {
                1 => "its entry has changed".to_owned(),
                _ => format!("its {entries} entries have changed"),
            };
            self.guard.emit(EventKind::PrecomputeDropped { why });
        }
        let (target, _) = self.target(Trigger::Threshold).await;
        self.guard.active_mut().context.precompute_job(&target)
    }
}

impl RuntimeState {
    /// Runs a job until it is done or a turn waits for the session.
    pub(super) async fn run_precompute(
        &self,
        cell: &SessionCell,
        lock: &SessionLock,
        job: PrecomputeJob,
    ) {
        let reply = lock.yield_permit_during(async {
            tokio::select! {
                // Biased: with a waiter or at shutdown a finished job is not worth storing.
                biased;
                () = cell.waiters.wait_for_waiter() => None,
                () = self.shutdown.cancelled() => None,
                reply = job.run() => Some(reply),
            }
        });
        let kind = match reply.await {
            None => EventKind::PrecomputeDropped { why: "cancelled for a turn".into() },
            Some(reply) => {
                let stored = cell.active.lock().await.context.store_precomputed(&job, reply);
                match stored {
                    Ok(engine) => EventKind::Precomputed { engine, entries: job.entries() },
                    Err(why) => EventKind::PrecomputeDropped { why },
                }
            }
        };
        self.emit(lock.session_id(), kind);
    }
}
