//! The journey of one request: taken, shaped, sent, answered.

use std::sync::Arc;

use super::again::{Count, refused};
use super::desk::Desk;
use super::hearing::{HearError, Heard, Words};
use super::long_window;
use super::on_demand;
use super::refusal;
use super::shaping::{Came, Sent};
use super::{Forward, Incoming, Taken, Ticket, Truth, passed};
use crate::thread::{Asked, Pending, Thread, scope};
use axum::body::Bytes;
use ctxhost_context::accounting::LearnedWindow;
use ctxhost_context::{CompactionPolicy, Context, ContextError, Target};
use ctxhost_dialects::inbound::Body;
use ctxhost_law::CannotFit;
use ctxhost_models::{ModelName, Window};
use ctxhost_runtime::{SessionGuard, TurnError};

/// A request that is out.
#[derive(Clone, Debug)]
pub(super) struct Journey {
    pub(super) incoming: Incoming,
    pub(super) thread: Arc<Thread>,
    pub(super) target: Target,
    /// What was sent, with the answer that its client asks for.
    pub(super) sent: Bytes,
    /// What it had of the conversation, as entries count.
    pub(super) sent_tokens: u64,
    /// The longest answer that may still be asked for, in provider tokens, where that was refused.
    pub(super) output_cap_tokens: Option<u64>,
    /// How often it was too large.
    pub(super) refusals: u32,
    /// Whether it is asked without thinking, because its history was not accepted.
    pub(super) is_plain: bool,
    pub(super) window: Window,
    pub(super) as_event: bool,
    pub(super) client_compacts: bool,
    /// Whether it is only to be made to fit: its client compacts, or its provider has it in its cache as it was.
    pub(super) only_fits: bool,
    /// Whether a compaction was applied on its way.
    pub(super) is_compacted: bool,
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
            Ok(heard) => self.send(incoming, came, heard).await,
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
        mut heard: Heard,
    ) -> Taken {
        let (target, window) = self.target(incoming, came.body, &heard.guard, heard.only_fits());
        let journey = self.journey(incoming, came, &heard.thread, target.clone(), window);
        let only_fits = heard.only_fits();
        let journey = Journey { client_compacts: heard.client_compacts, only_fits, ..journey };
        let taken = match self.shape_and_lower(&mut heard, came, &journey).await {
            Ok(sent) => {
                if sent.truth.compaction == "applied" {
                    self.keep(&mut heard).await;
                }
                forward(sent, journey)
            }
            Err(error) => self.failed(error, &heard, journey),
        };
        self.finish_request(incoming, heard, target);
        taken
    }

    /// The names of models are kept, and no model has such a one.
    fn is_too_long(&self, model: &str) -> bool {
        model.len() > self.config.gateway.model_name_max_bytes
    }

    /// The journey of a request that nothing was sent of yet.
    pub(super) fn journey(
        &self,
        incoming: &Incoming,
        came: Came<'_>,
        thread: &Arc<Thread>,
        target: Target,
        window: Window,
    ) -> Journey {
        let is_stream = incoming.door.is_stream(came.body);
        Journey {
            incoming: incoming.clone(),
            thread: thread.clone(),
            target,
            sent: Bytes::new(),
            sent_tokens: 0,
            output_cap_tokens: None,
            refusals: 0,
            is_plain: false,
            window,
            as_event: refusal::wants_event(&incoming.door, is_stream, &incoming.headers),
            client_compacts: false,
            only_fits: false,
            is_compacted: false,
        }
    }

    /// What the prompt of a request is prepared for.
    pub(super) fn target(
        &self,
        incoming: &Incoming,
        body: &Body<'_>,
        guard: &SessionGuard,
        only_fits: bool,
    ) -> (Target, Window) {
        let (provider, model) = (&*incoming.provider, incoming.door.model(body));
        let model = ModelName::new(provider, long_window::name(&model, &incoming.headers));
        let window = self.runtime.models().window(&model);
        let mut window_tokens = window.tokens;
        let window = match guard.context().accounting().learned_window(&model) {
            Some(LearnedWindow { tokens, is_said }) if tokens < window.tokens => {
                if is_said {
                    window_tokens = tokens;
                }
                Window { tokens, is_certain: is_said, ..window }
            }
            _ => window,
        };
        let settings = &self.settings;
        let reserve = |asked_tokens| self.reserve_tokens(asked_tokens, window.tokens);
        let target = Target {
            model,
            // A size that was refused without a limit bounds requests. Engines are told the window.
            window_tokens,
            min_window_tokens: settings.learned_min_tokens,
            reserve_tokens: body.max_output_tokens.map(reserve),
            // A turn of our own asks for no answer longer than its reserve; a client's may be lowered.
            is_reserve_usable: true,
            output_tokens: match window.is_prompt_only {
                true => 0,
                false => body.max_output_tokens.unwrap_or_default(),
            },
            min_output_tokens: settings.lower_max_tokens.then_some(settings.min_output_tokens),
            overhead_tokens: self.overhead_tokens(body),
            compaction: self.policy(guard.context(), only_fits),
            ..Target::default()
        };
        (target, window)
    }

    /// When the host may compact on the way to the prompt of a request.
    pub(super) fn policy(&self, context: &Context, only_fits: bool) -> CompactionPolicy {
        if only_fits {
            return CompactionPolicy::WhenNeeded;
        }
        // Tools have run since the person spoke last.
        let mid_turn = !context.view().last().is_some_and(|entry| entry.is_user_message());
        self.runtime.policy_for_client(mid_turn)
    }

    /// No request came of it: what cannot fit is refused where somebody said what fits, an engine's failure
    /// ends the request where the config says so, and anything else goes on as it came.
    fn failed(&self, error: TurnError, heard: &Heard, journey: Journey) -> Taken {
        let error = match error {
            TurnError::Context(ContextError::CannotFit(error)) if journey.window.is_certain => {
                match self.refusal_of(&error, heard, &journey) {
                    Some(refusal) => return refusal,
                    None => TurnError::Context(error.into()),
                }
            }
            error => error,
        };
        if self.ends_with(&error) {
            return Taken::Answer(self.ended(&error, &journey.incoming.door, &heard.session));
        }
        tracing::warn!(%error, session = heard.session, "a request is passed on without the engine");
        self.note_small_window(&error, &journey.target.model);
        let truth = Truth {
            engine: "none".into(),
            compaction: "failed",
            session: heard.session.clone(),
            ..Truth::default()
        };
        let body = journey.incoming.body.clone();
        let tokens = heard.thread.state().outline.said_tokens();
        forward(Sent { body, lowered: None, truth, tokens }, journey)
    }

    /// The refusal of a request that fits no plan, not even with nothing held free for its answer; `None`
    /// where it may fit all the same, by a middle estimate: its provider counts then.
    fn refusal_of(&self, error: &CannotFit, heard: &Heard, journey: &Journey) -> Option<Taken> {
        let overhead_tokens = journey.target.overhead_tokens;
        let said_tokens = heard.thread.state().outline.said_tokens();
        let needed_tokens = overhead_tokens.saturating_add(error.needed_tokens);
        if heard.guard.context().expected_tokens(needed_tokens) <= journey.window.tokens {
            return None;
        }
        tracing::info!(%error, session = heard.session, "a request cannot be made to fit");
        let all_tokens = overhead_tokens.saturating_add(said_tokens);
        let tokens = heard.guard.context().expected_tokens(all_tokens);
        let count = Count { said_tokens, tokens };
        Some(refused(journey.clone(), heard.session.clone(), count))
    }
}

pub(super) fn forward(sent: Sent, journey: Journey) -> Taken {
    let Sent { body, lowered, mut truth, tokens } = sent;
    let is_compacted = journey.is_compacted || truth.compaction == "applied";
    if is_compacted {
        // What an earlier form of the request was compacted for is told of the one that is answered.
        truth.compaction = "applied";
    }
    let mut journey = journey;
    if let Some(max_tokens) = truth.max_tokens {
        journey.target.output_tokens = max_tokens;
    }
    let journey = Journey { sent: body.clone(), sent_tokens: tokens, is_compacted, ..journey };
    let pending = Pending::of(&journey.thread);
    let ticket = Ticket { journey: Some(Box::new(journey)), pending, ..Ticket::default() };
    Taken::Forward(Forward { body: lowered.unwrap_or(body), truth, ticket })
}
