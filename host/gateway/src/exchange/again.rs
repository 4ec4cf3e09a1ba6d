//! A request that its upstream refused goes out in another form, or is refused in words that its client knows.

use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::desk::Desk;
use super::hearing::{Heard, Words};
use super::journey::{Journey, forward, is_mid_turn};
use super::refusal::{self, TooLarge};
use super::shaping::Came;
use super::windows::Window;
use super::{Taken, Truth};
use crate::thread::Asked;
use ctxhost_dialects::failure::RequestLimit;
use ctxhost_dialects::{ProviderError, Reason};
use ctxhost_runtime::{Guest, Passage, SMALLER_SHARE, TurnError};

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
        let passage = self.enter(&journey.thread).await;
        if let Some(passage) = &passage {
            if !is_plausible(passage, &journey, failure).await {
                return None;
            }
            passage.refused(&journey.guest, journey.sent_tokens, failure).await;
        }
        let limit_tokens = failure.limit_tokens.filter(|it| *it > 0);
        if let Some(limit_tokens) = limit_tokens.filter(|_| !failure.is_ceiling) {
            let tokens = limit_tokens.min(journey.window.tokens);
            journey.window = Window { tokens, is_certain: true, ..journey.window };
        }
        journey.refusals += 1;
        if journey.refusals > self.settings.too_large_tries {
            let session = passage.as_ref().map(|it| it.session_id().to_owned()).unwrap_or_default();
            return given_up(journey, session, failure);
        }
        let window_tokens = journey.window.tokens;
        // A shorter answer comes before a shorter conversation.
        let (output_cap_tokens, cap_tokens) = match (&passage, limit_tokens) {
            (Some(passage), Some(limit_tokens)) if failure.is_ceiling => {
                under_ceiling(passage, &journey, limit_tokens).await
            }
            _ => match answer_room_tokens(&journey, failure) {
                Some(room_tokens) => (Some(room_tokens), None),
                None if self.has_too_long_an_answer(passage.as_ref(), &journey).await => {
                    (Some(journey.guest.output_tokens / 2), None)
                }
                None => (None, Some((journey.sent_tokens as f64 * SMALLER_SHARE) as u64)),
            },
        };
        journey.output_cap_tokens = output_cap_tokens.or(journey.output_cap_tokens);
        let guest = &mut journey.guest;
        guest.cap_tokens = guest.cap_tokens.into_iter().chain(cap_tokens).min();
        guest.reserve_tokens =
            guest.reserve_tokens.map(|tokens| self.reserve_tokens(tokens, window_tokens));
        guest.trigger = Trigger::Overflow;
        match self.once_more(journey, passage).await? {
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
        let passage = self.enter(&journey.thread).await;
        match self.once_more(journey, passage).await? {
            // There was no thinking in it: its like would be refused alike.
            Ok(Taken::Forward(forward)) if forward.is_body_of(&before) => None,
            Ok(taken) => Some(taken),
            Err(Stuck { error, session, .. }) => {
                tracing::warn!(%error, session, "a history that is not accepted cannot be mended");
                None
            }
        }
    }

    /// The same request, shaped anew for its guest; in a conversation of its own where that which it is of
    /// has gone on meanwhile. `None` where it cannot be heard any more.
    async fn once_more(
        self: &Arc<Self>,
        journey: Journey,
        passage: Option<Passage>,
    ) -> Option<Result<Taken, Stuck>> {
        let incoming = journey.incoming.clone();
        let json = std::str::from_utf8(&incoming.body).ok()?;
        let speech = incoming.door.speech();
        let body = speech.body(json).ok()?;
        let came = Came { speech, bytes: &incoming.body, json, body: &body };
        let is_as_it_was = journey.thread.state().outline.len() == body.items.len();
        let heard = match passage.filter(|_| is_as_it_was) {
            Some(passage) => Heard {
                thread: journey.thread.clone(),
                session: passage.session_id().to_owned(),
                passage,
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
        let is_mid_turn = is_mid_turn(&heard.passage).await;
        let guest = Guest { is_mid_turn, ..journey.guest };
        let journey = Journey { thread: heard.thread.clone(), guest, ..journey };
        if journey.is_plain {
            let units = heard.thread.state().outline.units().len();
            self.refuse_thinking(&heard.session, units);
        }
        Some(match self.shape_and_lower(&heard, came, &journey).await {
            Ok(sent) => {
                if sent.truth.compaction == "applied" {
                    self.keep(&heard).await;
                }
                let guest = journey.guest.clone();
                self.finish_request(&journey.incoming, heard, guest);
                Ok(forward(sent, journey))
            }
            Err(error) => {
                self.note_small_window(&error, &journey.guest.model);
                Err(Stuck { error, journey, session: heard.session.clone() })
            }
        })
    }
}

/// Whether a request can have been too large: no part of a conversation is left out for a sentence that was
/// misread.
async fn is_plausible(passage: &Passage, journey: &Journey, failure: &ProviderError) -> bool {
    let tokens = journey.sent_tokens.saturating_add(journey.guest.overhead_tokens);
    let own_tokens = passage.expected_tokens(tokens).await;
    // A size that was refused before bounds the window, too.
    let learned = passage.learned_window(&journey.guest.model).await.map(|it| it.tokens);
    let window_tokens = journey.window.tokens.min(learned.unwrap_or(u64::MAX));
    let is_plausible = failure.is_plausible_overflow(own_tokens, window_tokens);
    if !is_plausible {
        tracing::info!(%failure, own_tokens, window_tokens, "far below the window, so not taken for too large");
    }
    is_plausible
}

/// The longest answer, in provider tokens, and the conversation, as entries count, that a key may send under what
/// it may use in a minute. That is no window: it holds for this request and is not learned.
async fn under_ceiling(
    passage: &Passage,
    journey: &Journey,
    limit_tokens: u64,
) -> (Option<u64>, Option<u64>) {
    let guest = &journey.guest;
    let limit = RequestLimit::under_ceiling(limit_tokens, guest.output_tokens);
    let tokens = journey.sent_tokens.saturating_add(guest.overhead_tokens);
    let expected_tokens = passage.expected_tokens(tokens).await.max(1);
    let fitting_tokens =
        (tokens as f64 * limit.prompt_tokens as f64 / expected_tokens as f64) as u64;
    let smaller_tokens = (journey.sent_tokens as f64 * SMALLER_SHARE) as u64;
    let cap_tokens = fitting_tokens.saturating_sub(guest.overhead_tokens);
    let is_answer_shorter = limit.answer_tokens < guest.output_tokens;
    let most_tokens = if is_answer_shorter { journey.sent_tokens } else { smaller_tokens };
    (Some(limit.answer_tokens).filter(|_| is_answer_shorter), Some(cap_tokens.min(most_tokens)))
}

/// What the upstream leaves for the answer, in provider tokens, where that is all that was too much.
fn answer_room_tokens(journey: &Journey, failure: &ProviderError) -> Option<u64> {
    let room_tokens = failure.fitting_answer_tokens();
    room_tokens.filter(|tokens| *tokens < journey.guest.output_tokens)
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
        let estimated = said_tokens.saturating_add(journey.guest.overhead_tokens);
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
