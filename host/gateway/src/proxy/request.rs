//! The journey of one request: taken, shaped, sent, answered.

use std::sync::Arc;

use super::client_errors;
use super::compact_endpoint;
use super::core::Proxy;
use super::ingest::{IngestError, IngestedRequest, RequestMeta};
use super::long_window;
use super::retry::{OverflowSize, overflow_refusal};
use super::shaping::{ParsedRequest, ShapedRequest};
use super::{
    ClientRequest, InFlightRequest, ProxyAction, ShapingReport, UpstreamRequest, pass_through,
};
use crate::conversations::{Conversation, PendingRequest, RequestItems, session_scope};
use axum::body::Bytes;
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_context::accounting::LearnedWindow;
use ctxhost_context::{CompactionPolicy, Context, ContextError, Target};
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_invariants::EmergencyTrimError;
use ctxhost_models::{ContextWindow, ModelName};

/// A request that is out.
#[derive(Clone, Debug)]
pub(super) struct ProxyRequest {
    pub(super) client_request: ClientRequest,
    pub(super) conversation: Arc<Conversation>,
    pub(super) target: Target,
    /// What was sent, with the answer that its client asks for.
    pub(super) sent_body: Bytes,
    /// What it had of the conversation, as entries count.
    pub(super) sent_tokens: u64,
    /// The longest answer that may still be asked for, in provider tokens, where that was refused.
    pub(super) output_cap_tokens: Option<u64>,
    /// How often it was too large.
    pub(super) refusals: u32,
    /// Whether it is asked without thinking, because its history was not accepted.
    pub(super) without_thinking: bool,
    pub(super) window: ContextWindow,
    pub(super) as_event: bool,
    pub(super) client_compacts: bool,
    /// Whether it is only to be made to fit: its client compacts, or its provider has it in its cache as it was.
    pub(super) is_fit_only: bool,
    /// Whether a compaction was applied on its way.
    pub(super) is_compacted: bool,
}

impl Proxy {
    /// What is done about a request. Whatever goes wrong on our side, it goes on as it came.
    pub(super) async fn handle(self: &Arc<Self>, incoming: &ClientRequest) -> ProxyAction {
        let Ok(json) = std::str::from_utf8(&incoming.body) else { return pass_through(incoming) };
        let speech = incoming.endpoint.inbound();
        let body = speech.parse_body(json);
        let in_body = body.as_ref().ok().and_then(|body| body.session_hint);
        let scope = match session_scope(&incoming.headers, in_body) {
            Ok(scope) => scope,
            Err(error) => {
                let truth = ShapingReport {
                    engine: "none".into(),
                    compaction: "none",
                    ..ShapingReport::default()
                };
                let message = error.to_string();
                return ProxyAction::Respond(client_errors::bad_request(
                    &incoming.endpoint,
                    &message,
                    truth,
                ));
            }
        };
        let body = match body {
            Ok(body) if self.is_model_name_too_long(&incoming.endpoint.model(&body)) => {
                return pass_through(incoming);
            }
            Ok(body) if !body.items.is_empty() => body,
            Ok(_) => return pass_through(incoming),
            Err(error) => {
                tracing::debug!(%error, "a body is passed on unread");
                return pass_through(incoming);
            }
        };
        if let Some(opened) = self.summary_signer.replace_signed(json, &body) {
            let incoming = ClientRequest { body: opened.into(), ..incoming.clone() };
            // A text of ours stands there now, and none that is sealed.
            return Box::pin(self.handle(&incoming)).await;
        }
        let items = compact_endpoint::items_to_compact(&incoming.endpoint, &body.items);
        let mut asked = RequestItems::new(self.seed, items.unwrap_or(&body.items));
        let key = self.conversation_key(scope.as_deref(), &mut asked);
        let came = ParsedRequest { inbound: speech, bytes: &incoming.body, json, body: &body };
        if items.is_some() {
            let words = RequestMeta { inbound: speech, headers: &incoming.headers, key };
            return self.compact(incoming, came, &words, &mut asked).await;
        }
        if incoming.endpoint.is_token_count() {
            return self.count_tokens(incoming, came, key, &mut asked).await;
        }
        let words = RequestMeta { inbound: speech, headers: &incoming.headers, key };
        match self.ingest(&words, &mut asked).await {
            Ok(heard) => self.shape_and_forward(incoming, came, heard).await,
            Err(IngestError::Body(error)) => {
                tracing::debug!(%error, "a body is passed on unread");
                pass_through(incoming)
            }
            Err(error) => {
                tracing::warn!(%error, "a request is passed on without the engine");
                pass_through(incoming)
            }
        }
    }

    async fn shape_and_forward(
        self: &Arc<Self>,
        incoming: &ClientRequest,
        came: ParsedRequest<'_>,
        mut heard: IngestedRequest,
    ) -> ProxyAction {
        let (target, window) = self.target(incoming, came.body, &heard.guard, heard.is_fit_only());
        let journey = self.new_request(incoming, came, &heard.conversation, target.clone(), window);
        let only_fits = heard.is_fit_only();
        let journey = ProxyRequest {
            client_compacts: heard.client_compacts,
            is_fit_only: only_fits,
            ..journey
        };
        let taken = match self.shape_and_lower(&mut heard, came, &journey).await {
            Ok(sent) => {
                if sent.report.compaction == "applied" {
                    self.persist(&mut heard).await;
                }
                forward(sent, journey)
            }
            Err(error) => self.handle_failure(error, &heard, journey),
        };
        self.finish_request(incoming, heard, target);
        taken
    }

    /// The names of models are kept, and no model has such a one.
    fn is_model_name_too_long(&self, model: &str) -> bool {
        model.len() > self.config.gateway.model_name_max_bytes
    }

    /// The journey of a request that nothing was sent of yet.
    pub(super) fn new_request(
        &self,
        incoming: &ClientRequest,
        came: ParsedRequest<'_>,
        thread: &Arc<Conversation>,
        target: Target,
        window: ContextWindow,
    ) -> ProxyRequest {
        let is_stream = incoming.endpoint.is_stream(came.body);
        ProxyRequest {
            client_request: incoming.clone(),
            conversation: thread.clone(),
            target,
            sent_body: Bytes::new(),
            sent_tokens: 0,
            output_cap_tokens: None,
            refusals: 0,
            without_thinking: false,
            window,
            as_event: client_errors::wants_event(&incoming.endpoint, is_stream, &incoming.headers),
            client_compacts: false,
            is_fit_only: false,
            is_compacted: false,
        }
    }

    /// What the prompt of a request is prepared for.
    pub(super) fn target(
        &self,
        incoming: &ClientRequest,
        body: &ParsedBody<'_>,
        guard: &SessionGuard,
        only_fits: bool,
    ) -> (Target, ContextWindow) {
        let (provider, model) = (&*incoming.provider, incoming.endpoint.model(body));
        let model =
            ModelName::new(provider, long_window::window_model_name(&model, &incoming.headers));
        let window = self.runtime.models().window(&model);
        let mut window_tokens = window.tokens;
        let window = match guard.context().accounting().learned_window(&model) {
            Some(LearnedWindow { tokens, is_stated: is_said }) if tokens < window.tokens => {
                if is_said {
                    window_tokens = tokens;
                }
                ContextWindow { tokens, is_certain: is_said, ..window }
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
            compaction: self.compaction_policy(guard.context(), only_fits),
            ..Target::default()
        };
        (target, window)
    }

    /// When the host may compact on the way to the prompt of a request.
    pub(super) fn compaction_policy(&self, context: &Context, only_fits: bool) -> CompactionPolicy {
        if only_fits {
            return CompactionPolicy::WhenNeeded;
        }
        // Tools have run since the person spoke last.
        let mid_turn = !context.view().last().is_some_and(|entry| entry.is_user_message());
        self.runtime.policy_for_client(mid_turn)
    }

    /// No request came of it: what cannot fit is refused where somebody said what fits, an engine's failure
    /// ends the request where the config says so, and anything else goes on as it came.
    fn handle_failure(
        &self,
        error: TurnError,
        heard: &IngestedRequest,
        journey: ProxyRequest,
    ) -> ProxyAction {
        let error = match error {
            TurnError::Context(ContextError::CannotFit(error)) if journey.window.is_certain => {
                match self.overflow_refusal_for(&error, heard, &journey) {
                    Some(refusal) => return refusal,
                    None => TurnError::Context(error.into()),
                }
            }
            error => error,
        };
        if self.is_fatal(&error) {
            return ProxyAction::Respond(self.engine_failed(
                &error,
                &journey.client_request.endpoint,
                &heard.session,
            ));
        }
        tracing::warn!(%error, session = heard.session, "a request is passed on without the engine");
        self.warn_small_window(&error, &journey.target.model);
        let truth = ShapingReport {
            engine: "none".into(),
            compaction: "failed",
            session: heard.session.clone(),
            ..ShapingReport::default()
        };
        let body = journey.client_request.body.clone();
        let tokens = heard.conversation.state().known.client_tokens();
        forward(ShapedRequest { body, lowered: None, report: truth, tokens }, journey)
    }

    /// The refusal of a request that fits no plan, not even with nothing held free for its answer; `None`
    /// where it may fit all the same, by a middle estimate: its provider counts then.
    fn overflow_refusal_for(
        &self,
        error: &EmergencyTrimError,
        heard: &IngestedRequest,
        journey: &ProxyRequest,
    ) -> Option<ProxyAction> {
        let overhead_tokens = journey.target.overhead_tokens;
        let said_tokens = heard.conversation.state().known.client_tokens();
        let needed_tokens = overhead_tokens.saturating_add(error.needed_tokens);
        if heard.guard.context().expected_tokens(needed_tokens) <= journey.window.tokens {
            return None;
        }
        tracing::info!(%error, session = heard.session, "a request cannot be made to fit");
        let all_tokens = overhead_tokens.saturating_add(said_tokens);
        let tokens = heard.guard.context().expected_tokens(all_tokens);
        let count = OverflowSize { conversation_tokens: said_tokens, tokens };
        Some(overflow_refusal(journey.clone(), heard.session.clone(), count))
    }
}

pub(super) fn forward(sent: ShapedRequest, journey: ProxyRequest) -> ProxyAction {
    let ShapedRequest { body, lowered, report: mut truth, tokens } = sent;
    let is_compacted = journey.is_compacted || truth.compaction == "applied";
    if is_compacted {
        // What an earlier form of the request was compacted for is told of the one that is answered.
        truth.compaction = "applied";
    }
    let mut journey = journey;
    if let Some(max_tokens) = truth.max_tokens {
        journey.target.output_tokens = max_tokens;
    }
    let journey =
        ProxyRequest { sent_body: body.clone(), sent_tokens: tokens, is_compacted, ..journey };
    let pending = PendingRequest::new(&journey.conversation);
    let ticket =
        InFlightRequest { journey: Some(Box::new(journey)), pending, ..InFlightRequest::default() };
    ProxyAction::Forward(UpstreamRequest {
        body: lowered.unwrap_or(body),
        report: truth,
        in_flight: ticket,
    })
}
