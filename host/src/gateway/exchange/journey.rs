//! The journey of one request: taken, sent, made smaller where it was too large, answered.

use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_engine_api::Trigger;

use super::desk::Desk;
use super::hearing::{HearError, Heard, Words};
use super::on_demand;
use super::refusal::{self, TooLarge};
use super::shaping::{Came, Sent};
use super::windows::{self, Window};
use super::{Afterwards, Forward, Incoming, Taken, Ticket, Truth, passed};
use crate::gateway::speech::Body;
use crate::gateway::thread::{Asked, Thread, scope};
use crate::law::CannotFit;
use crate::provider::message::Usage;
use crate::provider::{ProviderError, Reason};
use crate::runtime::accounting::LearnedWindow;
use crate::runtime::model_name::ModelName;
use crate::runtime::{Guest, Passage, RuntimeError, TurnError};

/// Share of a request that was too large which the next one may have, as in a turn of our own.
const SMALLER: f64 = 0.85;

/// A request that is out.
#[derive(Clone, Debug)]
pub(super) struct Journey {
    incoming: Incoming,
    thread: Arc<Thread>,
    guest: Guest,
    /// What was sent.
    sent: Bytes,
    /// What it had of the conversation, as entries count.
    sent_tokens: u64,
    /// How often it was too large.
    refusals: u32,
    /// Whether it is asked without thinking, because its history was not accepted.
    is_plain: bool,
    window: Window,
    as_event: bool,
    client_compacts: bool,
    /// Whether a compaction was applied on its way.
    is_compacted: bool,
}

/// A request that could not be shaped once more.
struct Stuck {
    error: TurnError,
    journey: Journey,
    session: String,
}

impl Desk {
    /// What is done about a request. Whatever goes wrong on our side, it goes on as it came.
    pub(super) async fn take(self: &Arc<Self>, incoming: &Incoming) -> Taken {
        let Ok(json) = std::str::from_utf8(&incoming.body) else { return passed(incoming) };
        let speech = incoming.door.speech();
        let body = speech.body(json);
        let in_body = body.as_ref().ok().and_then(|body| body.session);
        let scope = match scope(&incoming.headers, in_body) {
            Ok(scope) => scope,
            Err(error) => {
                let truth = Truth { engine: "none".into(), compaction: "none", ..Truth::default() };
                let message = error.to_string();
                return Taken::Answer(refusal::bad_request(&incoming.door, &message, truth));
            }
        };
        let body = match body {
            Ok(body) if self.is_too_long(&incoming.door.model(&body)) => return passed(incoming),
            Ok(body) if !body.items.is_empty() => body,
            Ok(_) => return passed(incoming),
            Err(error) => {
                tracing::debug!(%error, "a body is passed on unread");
                return passed(incoming);
            }
        };
        if let Some(opened) = self.seal.opened(json, &body) {
            let incoming = Incoming { body: opened.into(), ..incoming.clone() };
            // A text of ours stands there now, and none that is sealed.
            return Box::pin(self.take(&incoming)).await;
        }
        let items = on_demand::without_trigger(&incoming.door, &body.items);
        let mut asked = Asked::new(self.seed, items.unwrap_or(&body.items));
        let key = self.key(scope.as_deref(), &mut asked);
        let came = Came { speech, bytes: &incoming.body, json, body: &body };
        if items.is_some() {
            let words = Words { speech, headers: &incoming.headers, key };
            return self.compact(incoming, came, &words, &mut asked).await;
        }
        if incoming.door.only_counts() {
            return self.count(incoming, came, key, &mut asked).await;
        }
        let words = Words { speech, headers: &incoming.headers, key };
        match self.hear(&words, &mut asked).await {
            Ok(heard) => self.send(incoming, came, heard, &words).await,
            Err(HearError::Body(error)) => {
                tracing::debug!(%error, "a body is passed on unread");
                passed(incoming)
            }
            Err(error) => {
                tracing::warn!(%error, "a request is passed on without the engine");
                passed(incoming)
            }
        }
    }

    async fn send(
        self: &Arc<Self>,
        incoming: &Incoming,
        came: Came<'_>,
        heard: Heard,
        words: &Words<'_>,
    ) -> Taken {
        let (guest, window) = self.guest(incoming, came.body, &heard).await;
        let journey = Journey {
            incoming: incoming.clone(),
            thread: heard.thread.clone(),
            guest: guest.clone(),
            sent: Bytes::new(),
            sent_tokens: 0,
            refusals: 0,
            is_plain: false,
            window,
            client_compacts: heard.client_compacts,
            is_compacted: false,
            as_event: refusal::wants_event(
                &incoming.door,
                incoming.door.is_stream(came.body),
                &incoming.headers,
            ),
        };
        let taken = match self.shape(&heard, came, &journey.guest).await {
            Ok(sent) => {
                if sent.truth.compaction == "applied" {
                    self.keep(&heard, words.key).await;
                }
                forward(sent, journey)
            }
            Err(error) => self.failed(error, &heard, came, journey).await,
        };
        taken.leaving(self.leave(heard, guest))
    }

    /// The names of models are kept, and no model has such a one.
    fn is_too_long(&self, model: &str) -> bool {
        model.len() > self.config.gateway.model_name_max_bytes
    }

    /// What the request is shaped for.
    pub(super) async fn guest(
        &self,
        incoming: &Incoming,
        body: &Body<'_>,
        heard: &Heard,
    ) -> (Guest, Window) {
        let (provider, model) = (&*incoming.provider, incoming.door.model(body));
        let model = windows::name(&model, &incoming.headers);
        let window = windows::window(&self.runtime, &self.config, provider, &model);
        let model = ModelName::new(provider, model);
        let window = match heard.passage.learned_window(&model).await {
            Some(LearnedWindow { tokens, is_said }) if tokens < window.tokens => {
                Window { tokens, is_certain: is_said }
            }
            _ => window,
        };
        let most = (window.tokens as f64 * self.settings.reserve_max_share) as u64;
        let is_mid_turn = heard.passage.look(|it| !ends_with_person(&it.view())).await;
        let guest = Guest {
            model,
            window_tokens: window.tokens,
            reserve_tokens: body.max_output_tokens.map(|tokens| tokens.min(most)),
            overhead_tokens: self.overhead_tokens(body),
            cap_tokens: None,
            trigger: Trigger::Threshold,
            is_mid_turn,
            only_fits: heard.client_compacts || heard.is_again,
        };
        (guest, window)
    }

    /// No request came of it: what cannot fit is refused where somebody said what fits, an engine's failure
    /// ends the request where the config says so, and anything else goes on as it came.
    async fn failed(
        &self,
        error: TurnError,
        heard: &Heard,
        came: Came<'_>,
        mut journey: Journey,
    ) -> Taken {
        let error = match error {
            TurnError::Shape(RuntimeError::CannotFit(error)) if journey.window.is_certain => {
                match self.tightly(error, heard, came, &mut journey).await {
                    Ok(taken) => return taken,
                    Err(error) => error,
                }
            }
            error => error,
        };
        if self.ends_with(&error) {
            return Taken::Answer(self.ended(&error, &journey.incoming.door, &heard.session));
        }
        tracing::warn!(%error, session = heard.session, "a request is passed on without the engine");
        self.note_small_window(&error, &journey.guest.model);
        let truth = Truth {
            engine: "none".into(),
            compaction: "failed",
            session: heard.session.clone(),
            ..Truth::default()
        };
        let body = journey.incoming.body.clone();
        let tokens = heard.thread.state().outline.said_tokens();
        forward(Sent { body, truth, tokens }, journey)
    }

    /// What has no place beside a whole answer and a margin may have one without: who refuses it is the
    /// upstream, unless it cannot fit by any count.
    async fn tightly(
        &self,
        error: CannotFit,
        heard: &Heard,
        came: Came<'_>,
        journey: &mut Journey,
    ) -> Result<Taken, TurnError> {
        let window_tokens = journey.window.tokens;
        let overhead_tokens = journey.guest.overhead_tokens;
        let said_tokens = heard.thread.state().outline.said_tokens();
        let needed_tokens = overhead_tokens.saturating_add(error.needed_tokens);
        if heard.passage.expected_tokens(needed_tokens).await > window_tokens {
            tracing::info!(%error, session = heard.session, "a request cannot be made to fit");
            let all_tokens = overhead_tokens.saturating_add(said_tokens);
            let tokens = heard.passage.expected_tokens(all_tokens).await;
            let count = Count { said_tokens, tokens };
            return Ok(refused(journey.clone(), heard.session.clone(), count));
        }
        journey.guest.reserve_tokens = Some(0);
        let sent = self.shape(heard, came, &journey.guest).await?;
        if sent.truth.compaction == "applied" {
            self.keep(heard, heard.thread.key()).await;
        }
        Ok(forward(sent, journey.clone()))
    }

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
            passage.refused(&journey.guest, journey.sent_tokens, failure).await;
        }
        if let Some(limit) = failure.limit_tokens.filter(|it| *it > 0) {
            let tokens = limit.min(journey.window.tokens);
            journey.window = Window { tokens, is_certain: true };
        }
        journey.refusals += 1;
        if journey.refusals > self.settings.too_large_tries {
            let session = passage.as_ref().map(|it| it.session_id().to_owned()).unwrap_or_default();
            let count = Count::of(&journey, failure);
            return Some(refused(journey, session, count));
        }
        let cap_tokens = (journey.sent_tokens as f64 * SMALLER) as u64;
        let most = (journey.window.tokens as f64 * self.settings.reserve_max_share) as u64;
        let guest = &mut journey.guest;
        guest.cap_tokens = Some(guest.cap_tokens.unwrap_or(u64::MAX).min(cap_tokens));
        guest.reserve_tokens = guest.reserve_tokens.map(|tokens| tokens.min(most));
        guest.trigger = Trigger::Overflow;
        match self.once_more(journey, passage).await? {
            Ok(taken) => Some(taken),
            Err(Stuck { error, journey, session }) if self.ends_with(&error) => {
                Some(Taken::Answer(self.ended(&error, &journey.incoming.door, &session)))
            }
            Err(Stuck { error, journey, session }) => {
                tracing::warn!(%error, session, "a request stays too large");
                let count = Count::of(&journey, failure);
                Some(refused(journey, session, count))
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
            Ok(Taken::Forward(forward)) if forward.body == before => None,
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
        let journey = Journey { thread: heard.thread.clone(), ..journey };
        if journey.is_plain {
            let units = heard.thread.state().outline.units().len();
            self.refuse_thinking(&heard.session, units);
        }
        Some(match self.shape(&heard, came, &journey.guest).await {
            Ok(sent) => {
                if sent.truth.compaction == "applied" {
                    self.keep(&heard, heard.thread.key()).await;
                }
                let guest = journey.guest.clone();
                Ok(forward(sent, journey).leaving(self.leave(heard, guest)))
            }
            Err(error) => {
                self.note_small_window(&error, &journey.guest.model);
                Err(Stuck { error, journey, session: heard.session.clone() })
            }
        })
    }

    /// Learns from what the upstream counted, while nobody waits.
    pub(super) fn answered(
        self: &Arc<Self>,
        journey: Journey,
        usage: Usage,
        afterwards: Afterwards,
    ) {
        let desk = self.clone();
        self.runtime.in_background(async move {
            afterwards.await;
            if let Some(passage) = desk.enter(&journey.thread).await {
                passage.answered(&journey.guest, journey.sent_tokens, &usage).await;
            }
        });
    }
}

fn forward(sent: Sent, journey: Journey) -> Taken {
    let Sent { body, mut truth, tokens } = sent;
    let is_compacted = journey.is_compacted || truth.compaction == "applied";
    if is_compacted {
        // What an earlier form of the request was compacted for is told of the one that is answered.
        truth.compaction = "applied";
    }
    let journey = Journey { sent: body.clone(), sent_tokens: tokens, is_compacted, ..journey };
    let ticket = Ticket { journey: Some(Box::new(journey)), ..Ticket::default() };
    Taken::Forward(Forward { body, truth, ticket })
}

/// How large a request is that is refused.
struct Count {
    /// What it has of the conversation, as entries count.
    said_tokens: u64,
    /// All of it, in provider tokens.
    tokens: u64,
}

impl Count {
    /// As its provider counted it, else as it is estimated.
    fn of(journey: &Journey, failure: &ProviderError) -> Count {
        let said_tokens = journey.sent_tokens;
        let estimated = said_tokens.saturating_add(journey.guest.overhead_tokens);
        Count { said_tokens, tokens: failure.observed_tokens.unwrap_or(estimated) }
    }
}

fn refused(journey: Journey, session: String, count: Count) -> Taken {
    let Count { said_tokens, tokens } = count;
    let truth = Truth {
        engine: "none".into(),
        tokens: Some(said_tokens),
        before_tokens: Some(journey.thread.state().outline.said_tokens()),
        compaction: "failed",
        session,
    };
    let window_tokens = journey.window.tokens;
    let it = TooLarge { tokens, window_tokens, as_event: journey.as_event };
    Taken::Answer(refusal::too_large(&journey.incoming.door, it, truth))
}

fn ends_with_person(view: &ctxhost_engine_api::Transcript) -> bool {
    view.last().is_some_and(|entry| entry.is_user_message())
}
