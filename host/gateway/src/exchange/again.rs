//! A request that its upstream refused goes out in another form, or is refused in words that its client knows.

use std::sync::Arc;

use super::desk::Desk;
use super::hearing::{Heard, Words};
use super::journey::{Journey, forward};
use super::refusal::{self, TooLarge};
use super::shaping::Came;
use super::{Taken, Truth};
use crate::thread::Asked;
use ctxhost_context::Target;
use ctxhost_dialects::{ProviderError, Reason};
use ctxhost_models::Window;
use ctxhost_runtime::{SessionGuard, TurnError};

/// A request that could not be shaped once more.
struct Stuck {
    error: TurnError,
    journey: Journey,
    session: String,
}

impl Desk {
    /// The upstream refused a request.
    pub(super) async fn refused(
        self: &Arc<Self>,
        journey: Journey,
        failure: &ProviderError,
    ) -> Option<Taken> {
        match failure.reason {
            Reason::ContextOverflow => self.too_large(journey, failure).await,
            Reason::MalformedHistory => self.not_accepted(journey, failure).await,
            _ => None,
        }
    }

    /// The upstream found a request too large.
    async fn too_large(
        self: &Arc<Self>,
        mut journey: Journey,
        failure: &ProviderError,
    ) -> Option<Taken> {
        let mut guard = self.enter(&journey.thread).await?;
        let overflow = guard.overflow(&mut journey.target, journey.sent_tokens, failure)?;
        let limit_tokens = failure.limit_tokens.filter(|it| *it > 0);
        if let Some(limit_tokens) = limit_tokens.filter(|_| !failure.is_ceiling) {
            let tokens = limit_tokens.min(journey.window.tokens);
            journey.window = Window { tokens, is_certain: true, ..journey.window };
        }
        journey.refusals += 1;
        if journey.refusals > self.settings.too_large_tries {
            return given_up(journey, guard.session_id().to_owned(), failure);
        }
        journey.output_cap_tokens = overflow.max_output_tokens.or(journey.output_cap_tokens);
        let (target, window_tokens) = (&mut journey.target, journey.window.tokens);
        target.reserve_tokens =
            target.reserve_tokens.map(|tokens| self.reserve_tokens(tokens, window_tokens));
        match self.once_more(journey, Some(guard)).await? {
            Ok(taken) => Some(taken),
            Err(Stuck { error, journey, session }) if self.ends_with(&error) => {
                Some(Taken::Answer(self.ended(&error, &journey.incoming.door, &session)))
            }
            Err(Stuck { error, journey, session }) => {
                tracing::warn!(%error, session, "a request stays too large");
                given_up(journey, session, failure)
            }
        }
    }

    /// The upstream does not accept a history that is not as its client wrote it: it is asked once more
    /// without any thinking. What a client wrote is its own to mend.
    async fn not_accepted(
        self: &Arc<Self>,
        mut journey: Journey,
        failure: &ProviderError,
    ) -> Option<Taken> {
        let binds = journey.incoming.door.speech().binds_thinking();
        if !binds || journey.is_plain || journey.sent == journey.incoming.body {
            return None;
        }
        tracing::info!(%failure, "a history is asked about once more, without thinking");
        journey.is_plain = true;
        let before = journey.sent.clone();
        let guard = self.enter(&journey.thread).await;
        match self.once_more(journey, guard).await? {
            // There was no thinking in it: its like would be refused alike.
            Ok(Taken::Forward(forward)) if forward.is_body_of(&before) => None,
            Ok(taken) => Some(taken),
            Err(Stuck { error, session, .. }) => {
                tracing::warn!(%error, session, "a history that is not accepted cannot be mended");
                None
            }
        }
    }

    /// The same request, shaped anew for its target; in a conversation of its own where that which it is of
    /// has gone on meanwhile. `None` where it cannot be heard any more.
    async fn once_more(
        self: &Arc<Self>,
        journey: Journey,
        guard: Option<SessionGuard>,
    ) -> Option<Result<Taken, Stuck>> {
        let incoming = journey.incoming.clone();
        let json = std::str::from_utf8(&incoming.body).ok()?;
        let speech = incoming.door.speech();
        let body = speech.body(json).ok()?;
        let came = Came { speech, bytes: &incoming.body, json, body: &body };
        let is_as_it_was = journey.thread.state().outline.len() == body.items.len();
        let mut heard = match guard.filter(|_| is_as_it_was) {
            Some(guard) => Heard {
                thread: journey.thread.clone(),
                session: guard.session_id().to_owned(),
                guard,
                ended: None,
                client_compacts: journey.client_compacts,
                is_again: true,
            },
            None => {
                let mut asked = Asked::new(self.seed, &body.items);
                let key = journey.thread.key();
                let words = Words { speech, headers: &incoming.headers, key };
                self.hear(&words, &mut asked).await.ok()?
            }
        };
        let compaction = self.policy(heard.guard.context(), journey.only_fits);
        let target = Target { compaction, ..journey.target };
        let journey = Journey { thread: heard.thread.clone(), target, ..journey };
        if journey.is_plain {
            let units = heard.thread.state().outline.units().len();
            self.refuse_thinking(&heard.session, units);
        }
        Some(match self.shape_and_lower(&mut heard, came, &journey).await {
            Ok(sent) => {
                if sent.truth.compaction == "applied" {
                    self.keep(&mut heard).await;
                }
                let target = journey.target.clone();
                self.finish_request(&journey.incoming, heard, target);
                Ok(forward(sent, journey))
            }
            Err(error) => {
                self.note_small_window(&error, &journey.target.model);
                Err(Stuck { error, journey, session: heard.session.clone() })
            }
        })
    }
}

/// The end of a request that stays too large: in words that its client knows where the upstream has shown that
/// it is, else in the upstream's own.
fn given_up(journey: Journey, session: String, failure: &ProviderError) -> Option<Taken> {
    if !failure.shows_overflow() {
        return None;
    }
    let count = Count::of(&journey, failure);
    Some(refused(journey, session, count))
}

/// How large a request is that is refused.
pub(super) struct Count {
    /// What it has of the conversation, as entries count.
    pub(super) said_tokens: u64,
    /// All of it, in provider tokens.
    pub(super) tokens: u64,
}

impl Count {
    /// As its provider counted it, else as it is estimated.
    fn of(journey: &Journey, failure: &ProviderError) -> Count {
        let said_tokens = journey.sent_tokens;
        let estimated = said_tokens.saturating_add(journey.target.overhead_tokens);
        Count { said_tokens, tokens: failure.observed_tokens.unwrap_or(estimated) }
    }
}

/// The refusal of a request that cannot be made to fit.
pub(super) fn refused(journey: Journey, session: String, count: Count) -> Taken {
    let Count { said_tokens, tokens } = count;
    let truth = Truth {
        engine: "none".into(),
        tokens: Some(said_tokens),
        before_tokens: Some(journey.thread.state().outline.said_tokens()),
        compaction: "failed",
        session,
        max_tokens: None,
    };
    let window_tokens = journey.window.tokens;
    let it = TooLarge { tokens, window_tokens, as_event: journey.as_event };
    Taken::Answer(refusal::too_large(&journey.incoming.door, it, truth))
}

#[cfg(test)]
mod tests;
