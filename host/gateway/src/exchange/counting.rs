//! A client asks how large its next request would be: that of what a model would see of it.

use axum::http::StatusCode;
use ctxhost_engine_api::Plan;
use serde_json::{Value, json};

use super::desk::Desk;
use super::news::News;
use super::shaping::{Came, written};
use super::{Answer, Door, Forward, Incoming, Taken, Ticket, Truth, as_it_came};
use crate::thread::{Asked, Digest, Fit, Outline};
use ctxhost_context::LiveSession;
use ctxhost_history::Until;
use ctxhost_law as law;
use ctxhost_session::{Header, Session};

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
        let forward = match self.would_be_sent(came, key, asked).await {
            Some((body, truth)) => Forward { body: body.into(), truth, ticket: Ticket::default() },
            None => as_it_came(incoming),
        };
        let inquiry = Inquiry { incoming: incoming.clone(), truth: forward.truth.clone() };
        let ticket = Ticket { inquiry: Some(Box::new(inquiry)), ..Ticket::default() };
        Taken::Forward(Forward { ticket, ..forward })
    }

    /// What is answered where no upstream counts: what entries count, which is near to what a model counts
    /// and is learned from no answer.
    pub(super) fn estimated(&self, inquiry: Inquiry) -> Option<Answer> {
        let Inquiry { incoming, truth } = inquiry;
        let json = std::str::from_utf8(&incoming.body).ok()?;
        let speech = incoming.door.speech();
        let body = speech.body(json).ok()?;
        let came = Came { speech, bytes: &incoming.body, json, body: &body };
        let tokens = truth.tokens.or_else(|| self.said_tokens(came))?;
        let tokens = tokens + self.overhead_tokens(&body);
        Some(Answer {
            status: StatusCode::OK,
            content_type: "application/json",
            body: counted(&incoming.door, tokens).to_string().into(),
            truth,
        })
    }

    /// What the words of a request take that no conversation knows.
    fn said_tokens(&self, came: Came<'_>) -> Option<u64> {
        let mut asked = Asked::new(self.seed, &came.body.items);
        let session = Session::in_memory(Header::new(None, "/", self.runtime.now_ms()));
        let (session, _) = going_on(session, Outline::default(), came, &mut asked)?;
        Some(LiveSession::new(session).view().total_tokens())
    }

    async fn would_be_sent(
        &self,
        came: Came<'_>,
        key: Digest,
        asked: &mut Asked<'_>,
    ) -> Option<(Vec<u8>, Truth)> {
        let thread = self.threads.find(key, asked, self.runtime.now_ms()).await?;
        let guard = self.enter(&thread).await?;
        let (outline, is_compacted) = {
            let state = thread.state();
            let goes_on = matches!(state.fit(asked), Fit::GoesOn { .. });
            goes_on.then(|| (state.outline.clone(), state.is_compacted))?
        };
        if !is_compacted {
            return None;
        }
        let fork = guard.fork(&Until::Leaf, "".as_ref()).ok()?;
        let surroundings = self.surroundings(&thread, guard.context().session(), came.speech);
        let session = guard.session_id().to_owned();
        drop(guard);
        let (fork, outline) = going_on(fork, Outline::clone(&outline), came, asked)?;
        let view = LiveSession::new(fork).view();
        let plan = Plan::keep_all(view.len());
        let lawful = law::enforce(&view, plan, u64::MAX / 4, &self.config.law).ok()?;
        let truth = Truth {
            engine: self.runtime.engine(),
            tokens: Some(lawful.tokens),
            before_tokens: None,
            compaction: "none",
            session,
            max_tokens: None,
        };
        Some((written(came, &outline, &lawful, &view, &surroundings), truth))
    }
}

/// A request that only counts, as it came, and the truth about what is sent of it.
#[derive(Debug)]
pub(super) struct Inquiry {
    incoming: Incoming,
    truth: Truth,
}

/// A count in the words of the dialect.
fn counted(door: &Door, tokens: u64) -> Value {
    match door {
        Door::Generate { .. } | Door::GenerateCount { .. } => json!({ "totalTokens": tokens }),
        _ => json!({ "input_tokens": tokens }),
    }
}

/// A copy of a conversation, with what the request says behind it.
fn going_on(
    mut fork: Session,
    mut outline: Outline,
    came: Came<'_>,
    asked: &mut Asked<'_>,
) -> Option<(Session, Outline)> {
    let News { units, bodies } = News::behind(&outline, came.speech, asked.items()).ok()?;
    let mut ids = Vec::new();
    for body in bodies {
        ids.push(fork.append(body).ok()?);
    }
    outline.extend(asked, &units, &ids);
    Some((fork, outline))
}
