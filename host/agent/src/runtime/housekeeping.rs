//! Work after a turn's reply: compactions that are due, engine maintenance, precomputation.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{MaintainRequest, Trigger};

use super::Runtime;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::session_cell::SessionId;
use crate::session_guard::SessionGuard;
use crate::state::RuntimeState;
use crate::turn::agent_turn::AgentTurn;
use ctxhost_config::CompactionTiming;
use ctxhost_context::PrecomputeJob;

impl Runtime {
    /// Runs the housekeeping of a session in the background, under its lock.
    pub(super) fn spawn_housekeeping(&self, session: &SessionId) {
        let (state, session) = (self.state.clone(), session.clone());
        self.state.background.spawn(async move {
            if let Err(error) = run_housekeeping(&state, &session).await {
                tracing::warn!(session = session.as_str(), %error, "housekeeping failed");
            }
        });
    }
}

async fn run_housekeeping(state: &Arc<RuntimeState>, session: &SessionId) -> Result<(), TurnError> {
    let settings = &state.compaction;
    let cell = state.session(session)?;
    if settings.timing == CompactionTiming::Idle {
        let entries = cell.active.lock().await.context.view().len();
        // Without the lock: a message must start its turn at once.
        let pause = tokio::time::sleep(Duration::from_millis(settings.idle_ms));
        if state.shutdown.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
        if cell.active.lock().await.context.view().len() != entries {
            // Another turn ran meanwhile and does its own housekeeping.
            return Ok(());
        }
    }
    // Not counted as a waiter: a running precomputation yields to turns, not to housekeeping.
    let lock = state.session_locks.lock(session.as_str()).await;
    let lock = state.acquire_lease(session, &cell, lock).await?;
    let mut turn = AgentTurn::new(SessionGuard::new(state, &cell, lock).await)?;
    let outcome = run_due_work(&mut turn).await;
    // Also after an error, which counts as a failure of the engine.
    turn.guard.report_metrics();
    if let Some(job) = outcome? {
        let (cell, mut lock) = turn.guard.into_lock();
        // The job works on a snapshot; other machines may continue the session meanwhile.
        lock.release_lease();
        state.run_precompute(&cell, &lock, job).await;
    }
    Ok(())
}

/// Runs what is due now; returns a compaction to precompute, if any.
async fn run_due_work(turn: &mut AgentTurn) -> Result<Option<PrecomputeJob>, TurnError> {
    let timing = turn.state.compaction.timing;
    let is_due = match timing {
        CompactionTiming::BetweenTurns | CompactionTiming::Idle => turn.compact_if_wanted().await?,
        CompactionTiming::Ask => turn.wants_compaction().await?,
        CompactionTiming::Manual => false,
    };
    if is_due && timing == CompactionTiming::Ask {
        turn.guard.emit(EventKind::CompactionRecommended);
    }
    let session = turn.session().reference().clone();
    let request = MaintainRequest { session, reason: "turn".into(), ..MaintainRequest::default() };
    turn.guard.context().engine().maintain(&turn.session().view(), request).await?;
    // After a compaction, or with one recommended, a second one is not needed.
    Ok(if is_due { None } else { turn.precompute().await })
}

impl AgentTurn {
    /// Compacts if the engine wants to or the live transcript exceeds `compaction.max_live_bytes`;
    /// returns whether it did.
    async fn compact_if_wanted(&mut self) -> Result<bool, TurnError> {
        let limit_bytes = self.state.compaction.max_live_bytes;
        let trigger = if limit_bytes > 0 && self.session().live_bytes() > limit_bytes {
            Trigger::Bytes
        } else if self.wants_compaction().await? {
            Trigger::Threshold
        } else {
            return Ok(false);
        };
        self.compact(trigger, None).await?;
        Ok(true)
    }
}
