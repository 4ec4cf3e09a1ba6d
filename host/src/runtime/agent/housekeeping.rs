//! What happens after a turn, when its answer is out: owed compactions, maintenance.

use std::time::Duration;

use ctxhost_engine_api::{MaintainRequest, Trigger};

use super::{Runtime, SessionId, Shared};
use crate::config::Timing;
use crate::runtime::event::What;
use crate::runtime::turn::{Turn, TurnError};

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
    let mut open = held.open.lock().await;
    let mut turn = Turn::new(shared, &lane, &mut open)?;
    match settings.timing {
        Timing::BetweenTurns | Timing::Idle => turn.compact_if_wanted().await?,
        Timing::Ask => {
            if turn.wants_compaction().await? {
                shared.tell(session.as_str(), What::CompactionOwed);
            }
        }
        Timing::Manual => {}
    }
    let view = turn.conversation.view();
    let request = MaintainRequest {
        session: turn.conversation.reference().clone(),
        reason: "turn".into(),
        ..MaintainRequest::default()
    };
    turn.slot.maintain(&view, request).await?;
    Ok(())
}

impl Turn<'_> {
    /// Compacts where the engine would like to, or where the file has grown past its limit.
    async fn compact_if_wanted(&mut self) -> Result<(), TurnError> {
        let limit_bytes = self.shared.compaction.max_live_bytes;
        if limit_bytes > 0 && self.conversation.live_bytes() > limit_bytes {
            self.compact(Trigger::Bytes, None).await?;
        } else if self.wants_compaction().await? {
            self.compact(Trigger::Threshold, None).await?;
        }
        Ok(())
    }
}
