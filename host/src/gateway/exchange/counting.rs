//! A client asks how large its next request would be: that of what a model would see of it.

use ctxhost_engine_api::Plan;

use super::desk::Desk;
use super::hearing::{bodies_of, units_behind};
use super::shaping::{Came, written};
use super::{Afterwards, Forward, Incoming, Taken, Ticket, Truth, passed};
use crate::gateway::thread::{Asked, Digest, Fit, Outline};
use crate::history::Until;
use crate::law;
use crate::runtime::Conversation;
use crate::session::Session;

impl Desk {
    /// The body of the request that would go out, of which nothing is kept. What no compaction has touched
    /// is counted as it came.
    pub(super) async fn count(
        &self,
        incoming: &Incoming,
        came: Came<'_>,
        key: Digest,
        asked: &mut Asked<'_>,
    ) -> Taken {
        let body = self.would_be_sent(came, key, asked).await;
        let Some((body, truth)) = body else { return passed(incoming) };
        let (ticket, afterwards) = (Ticket::default(), Afterwards::default());
        Taken::Forward(Forward { body: body.into(), truth, ticket, afterwards })
    }

    async fn would_be_sent(
        &self,
        came: Came<'_>,
        key: Digest,
        asked: &mut Asked<'_>,
    ) -> Option<(Vec<u8>, Truth)> {
        let thread = self.threads.find(key, asked, self.runtime.now_ms()).await?;
        let passage = self.enter(&thread).await?;
        let (outline, is_compacted) = {
            let state = thread.state();
            let goes_on = matches!(state.outline.fit(asked), Fit::GoesOn { .. });
            goes_on.then(|| (state.outline.clone(), state.is_compacted))?
        };
        if !is_compacted {
            return None;
        }
        let fork = passage.fork(&Until::Leaf, "".as_ref()).await.ok()?;
        let images = passage.look(|conversation| conversation.images().clone()).await;
        let session = passage.session_id().to_owned();
        drop(passage);
        let (fork, outline) = going_on(fork, outline, came, asked)?;
        let view = Conversation::new(fork, &self.config.law).view();
        let plan = Plan::keep_all(view.len());
        let lawful = law::enforce(&view, plan, u64::MAX / 4, &self.config.law).ok()?;
        let truth = Truth {
            engine: self.runtime.engine(),
            tokens: Some(lawful.tokens),
            before_tokens: None,
            compaction: "none",
            session,
        };
        Some((written(came, &outline, &lawful, &view, &images), truth))
    }
}

/// A copy of a conversation, with what the request says behind it.
fn going_on(
    mut fork: Session,
    mut outline: Outline,
    came: Came<'_>,
    asked: &mut Asked<'_>,
) -> Option<(Session, Outline)> {
    let units = units_behind(&outline, came.speech, asked.items()).ok()?;
    let mut ids = Vec::new();
    for body in bodies_of(&units).ok()? {
        ids.push(fork.append(body).ok()?);
    }
    outline.extend(asked, &units, &ids);
    Some((fork, outline))
}
