//! What happens after a turn, when its answer is out: owed compactions, maintenance.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{MaintainRequest, Trigger};

use super::{Runtime, SessionId, Shared};
use crate::event::What;
use crate::session_guard::SessionGuard;
use crate::turn::{Turn, TurnError};
use ctxhost_config::Timing;
use ctxhost_context::PrecomputeJob;

impl Runtime {
    /// Looks after a session in the background, in its lane.
    pub(super) fn housekeep(&self, session: &SessionId) {
        let (shared, session) = (self.shared.clone(), session.clone());
        self.shared.background.spawn(async move {
            if let Err(error) = look_after(&shared, &session).await {
                tracing::warn!(session = session.as_str(), %error, "housekeeping failed");
            }
        });
    }
}

async fn look_after(shared: &Arc<Shared>, session: &SessionId) -> Result<(), TurnError> {
    let settings = &shared.compaction;
    let held = shared.session(session)?;
    if settings.timing == Timing::Idle {
        let said = held.open.lock().await.context.view().len();
        let pause = tokio::time::sleep(Duration::from_millis(settings.idle_ms));
        if shared.closing.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
        if held.open.lock().await.context.view().len() != said {
            // Somebody spoke: the turn after that one looks again.
            return Ok(());
        }
    }
    let lane = shared.lanes.enter(session.as_str()).await;
    let lane = shared.hold(session, &held, lane).await?;
    let mut turn = Turn::new(SessionGuard::new(shared, &held, lane).await)?;
    let tended = tend(&mut turn).await;
    turn.guard.report();
    if let Some(job) = tended? {
        let (held, mut lane) = turn.guard.into_lane();
        lane.let_others_in();
        shared.work_out(&held, &lane, job).await;
    }
    Ok(())
}

/// What is due now; answers what is worth to be worked out before it is needed.
async fn tend(turn: &mut Turn) -> Result<Option<PrecomputeJob>, TurnError> {
    let is_owed = match turn.shared.compaction.timing {
        Timing::BetweenTurns | Timing::Idle => turn.compact_if_wanted().await?,
        Timing::Ask => turn.wants_compaction().await?,
        Timing::Manual => false,
    };
    if is_owed && turn.shared.compaction.timing == Timing::Ask {
        turn.guard.tell(What::CompactionOwed);
    }
    let session = turn.session().reference().clone();
    let request = MaintainRequest { session, reason: "turn".into(), ..MaintainRequest::default() };
    turn.guard.context().engine().maintain(&turn.session().view(), request).await?;
    Ok(if is_owed { None } else { turn.precompute().await })
}

impl Turn {
    /// Compacts where the engine would like to, or where the file has grown past its limit; whether it
    /// was so.
    async fn compact_if_wanted(&mut self) -> Result<bool, TurnError> {
        let limit_bytes = self.shared.compaction.max_live_bytes;
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
