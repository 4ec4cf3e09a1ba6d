//! What happens after a turn, when its answer is out: owed compactions, maintenance.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{MaintainRequest, Trigger};

use super::{Runtime, RuntimeState, SessionId};
use crate::event::EventKind;
use crate::session_guard::SessionGuard;
use crate::turn::{AgentTurn, TurnError};
use ctxhost_config::CompactionTiming;
use ctxhost_context::PrecomputeJob;

impl Runtime {
    /// Looks after a session in the background, in its lane.
    pub(super) fn spawn_housekeeping(&self, session: &SessionId) {
        let (shared, session) = (self.state.clone(), session.clone());
        self.state.background.spawn(async move {
            if let Err(error) = run_housekeeping(&shared, &session).await {
                tracing::warn!(session = session.as_str(), %error, "housekeeping failed");
            }
        });
    }
}

async fn run_housekeeping(
    shared: &Arc<RuntimeState>,
    session: &SessionId,
) -> Result<(), TurnError> {
    let settings = &shared.compaction;
    let held = shared.session(session)?;
    if settings.timing == CompactionTiming::Idle {
        let said = held.active.lock().await.context.view().len();
        let pause = tokio::time::sleep(Duration::from_millis(settings.idle_ms));
        if shared.shutdown.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
        if held.active.lock().await.context.view().len() != said {
            // Somebody spoke: the turn after that one looks again.
            return Ok(());
        }
    }
    let lane = shared.session_locks.lock(session.as_str()).await;
    let lane = shared.acquire_lease(session, &held, lane).await?;
    let mut turn = AgentTurn::new(SessionGuard::new(shared, &held, lane).await)?;
    let tended = run_due_work(&mut turn).await;
    turn.guard.report_metrics();
    if let Some(job) = tended? {
        let (held, mut lane) = turn.guard.into_lock();
        lane.release_lease();
        shared.run_precompute(&held, &lane, job).await;
    }
    Ok(())
}

/// What is due now; answers what is worth to be worked out before it is needed.
async fn run_due_work(turn: &mut AgentTurn) -> Result<Option<PrecomputeJob>, TurnError> {
    let is_owed = match turn.state.compaction.timing {
        CompactionTiming::BetweenTurns | CompactionTiming::Idle => turn.compact_if_wanted().await?,
        CompactionTiming::Ask => turn.wants_compaction().await?,
        CompactionTiming::Manual => false,
    };
    if is_owed && turn.state.compaction.timing == CompactionTiming::Ask {
        turn.guard.emit(EventKind::CompactionRecommended);
    }
    let session = turn.session().reference().clone();
    let request = MaintainRequest { session, reason: "turn".into(), ..MaintainRequest::default() };
    turn.guard.context().engine().maintain(&turn.session().view(), request).await?;
    Ok(if is_owed { None } else { turn.precompute().await })
}

impl AgentTurn {
    /// Compacts where the engine would like to, or where the file has grown past its limit; whether it
    /// was so.
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
