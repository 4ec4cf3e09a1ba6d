//! What happens after a turn, when its answer is out: owed compactions, maintenance.

use std::time::Duration;

use ctxhost_engine_api::{MaintainRequest, Trigger};

use super::{OpenSession, Runtime, SessionId, Shared};
use crate::event::What;
use crate::lane::LaneGuard;
use crate::precompute::Job;
use crate::turn::{Turn, TurnError};
use ctxhost_config::Timing;

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

async fn look_after(shared: &Shared, session: &SessionId) -> Result<(), TurnError> {
    let settings = &shared.compaction;
    let held = shared.session(session)?;
    if settings.timing == Timing::Idle {
        let said = held.open.lock().await.conversation.view().len();
        let pause = tokio::time::sleep(Duration::from_millis(settings.idle_ms));
        if shared.closing.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
        if held.open.lock().await.conversation.view().len() != said {
            // Somebody spoke: the turn after that one looks again.
            return Ok(());
        }
    }
    let lane = shared.lanes.enter(session.as_str()).await;
    let mut lane = shared.hold(session, &held, lane).await?;
    let job = tend(shared, &lane, &mut *held.open.lock().await).await?;
    if let Some(job) = job {
        lane.let_others_in();
        shared.work_out(&held, &lane, job).await;
    }
    Ok(())
}

/// What is due now; answers what is worth to be worked out ahead.
async fn tend(
    shared: &Shared,
    lane: &LaneGuard,
    open: &mut OpenSession,
) -> Result<Option<Job>, TurnError> {
    let mut turn = Turn::new(shared, lane, open)?;
    let tended = tend_within(&mut turn).await;
    turn.report();
    tended
}

async fn tend_within(turn: &mut Turn<'_>) -> Result<Option<Job>, TurnError> {
    let is_owed = match turn.shared.compaction.timing {
        Timing::BetweenTurns | Timing::Idle => turn.compact_if_wanted().await?,
        Timing::Ask => turn.wants_compaction().await?,
        Timing::Manual => false,
    };
    if is_owed && turn.shared.compaction.timing == Timing::Ask {
        turn.tell(What::CompactionOwed);
    }
    let view = turn.conversation.view();
    let request = MaintainRequest {
        session: turn.conversation.reference().clone(),
        reason: "turn".into(),
        ..MaintainRequest::default()
    };
    turn.slot.maintain(&view, request).await?;
    Ok(if is_owed { None } else { turn.job_ahead().await })
}

impl Turn<'_> {
    /// Compacts where the engine would like to, or where the file has grown past its limit; whether it
    /// was so.
    async fn compact_if_wanted(&mut self) -> Result<bool, TurnError> {
        let limit_bytes = self.shared.compaction.max_live_bytes;
        let trigger = if limit_bytes > 0 && self.conversation.live_bytes() > limit_bytes {
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
