//! Handles a client request: parses it, ingests it into its conversation and shapes it for the upstream.

use std::sync::Arc;

use axum::body::Bytes;

use super::blocking_pool::{is_large, run_blocking};
use super::client_errors::{self, OverflowSize};
use super::compact_endpoint;
use super::core::Proxy;
use super::ingest::{IngestError, IngestedRequest, RequestMeta};
use super::long_window;
use super::messages::{ClientRequest, LocalResponse, ShapingReport};
use super::request::{ProxyAction, ProxyRequest};
use super::shaping::{ParsedRequest, ShapedRequest};
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_context::accounting::LearnedWindow;
use ctxhost_context::{CompactionPolicy, Context, ContextError, Target};
use ctxhost_conversations::{RequestItems, ReturnedSummary, SeededHash, session_scope};
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_invariants::EmergencyTrimError;
use ctxhost_models::{ContextWindow, ModelName};

impl Proxy {
    /// Decides what happens to a request. If anything fails on our side, the request is forwarded unchanged.
    pub async fn handle(self: &Arc<Self>, request: &ClientRequest) -> ProxyAction {
        let action = if is_large(request) {
            let (proxy, request) = (self.clone(), request.clone());
            run_blocking(async move { proxy.process(&request, None).await }).await
        } else {
            self.process(request, None).await
        };
        self.start_eviction();
        action
    }

    /// `summary` is the summary of this gateway that the request starts with.
    async fn process(
        self: &Arc<Self>,
        request: &ClientRequest,
        summary: Option<ReturnedSummary>,
    ) -> ProxyAction {
        let json = match std::str::from_utf8(&request.body) {
            Ok(json) => json,
            Err(error) => {
                return self.forward_unread(request, self.unread_key(&request.body), &error);
            }
        };
        let inbound = request.endpoint.inbound();
        let body = request.endpoint.parse_body(json);
        let session_hint = body.as_ref().ok().and_then(|body| body.session_hint);
        let scope = match session_scope(&request.headers, session_hint) {
            Ok(scope) => scope,
            Err(error) => {
                let message = error.to_string();
                return ProxyAction::Respond(client_errors::bad_request(
                    &request.endpoint,
                    &message,
                ));
            }
        };
        let body = match body {
            Ok(body) if self.is_model_name_too_long(&body.model) => {
                return ProxyAction::pass_through(request);
            }
            Ok(body) if body.items.len() > self.settings.max_messages => {
                let (messages, limit) = (body.items.len(), self.settings.max_messages);
                let error = format!("it has {messages} messages, gateway.max_messages is {limit}");
                return self.forward_unread(request, self.unread_key(&request.body), &error);
            }
            Ok(body) if !body.items.is_empty() => body,
            Ok(_) => {
                let Some(listed) = inbound.list_prompt(json) else {
                    // No messages: the provider has them (`previous_response_id`), and there is nothing to shape.
                    return self.forward_stored(request);
                };
                // This recurses once: the new body has an item.
                let listed = ClientRequest { body: listed.into(), ..request.clone() };
                let action = Box::pin(self.process(&listed, summary)).await;
                return action.with_client_body(&listed.body, &request.body);
            }
            Err(error) => {
                return self.forward_unread(request, self.unread_key(&request.body), &error);
            }
        };
        if let Some(opened) = self.summary_signer.open_items(json, &body) {
            let request = ClientRequest { body: opened.json.into(), ..request.clone() };
            // This recurses once: the new body has no signed summary left.
            return Box::pin(self.process(&request, opened.summary)).await;
        }
        let to_compact = compact_endpoint::items_to_compact(&request.endpoint, &body.items);
        let mut request_items = RequestItems::new(self.seed, to_compact.unwrap_or(&body.items));
        request_items.set_returned_summary(summary);
        let key = self.conversation_key(scope.as_deref(), &mut request_items);
        let parsed = ParsedRequest { inbound, bytes: &request.body, json, body: &body };
        let meta = RequestMeta {
            inbound,
            headers: &request.headers,
            key,
            scope: scope.as_deref(),
            ignored_items: &body.ignored_items,
            provider_compacts: body.provider_edits.may_compact,
        };
        if to_compact.is_some() {
            return self.compact(request, parsed, &meta, &mut request_items).await;
        }
        if request.endpoint.is_token_count() {
            return self.count_tokens(request, parsed, key, &mut request_items).await;
        }
        match self.ingest(&meta, &mut request_items).await {
            Ok(ingested) => self.shape_and_forward(request, parsed, ingested).await,
            Err(IngestError::Body(error)) => self.forward_unread(request, key, &error),
            Err(error) => {
                if self.is_first_unshaped(key) {
                    tracing::warn!(
                        %error,
                        "ingest failed: this request of a conversation and further ones are forwarded unshaped"
                    );
                }
                ProxyAction::pass_through(request)
            }
        }
    }

    fn forward_unread(
        &self,
        request: &ClientRequest,
        conversation: SeededHash,
        error: &dyn std::fmt::Display,
    ) -> ProxyAction {
        self.warn_unreadable(conversation, error);
        ProxyAction::pass_through(request)
    }

    async fn shape_and_forward(
        self: &Arc<Self>,
        request: &ClientRequest,
        parsed: ParsedRequest<'_>,
        mut ingested: IngestedRequest,
    ) -> ProxyAction {
        let is_fit_only = ingested.is_fit_only();
        let (target, window) = self.target(request, parsed.body, &ingested.guard, is_fit_only);
        let is_stream = parsed.body.is_stream;
        let proxy_request = ProxyRequest {
            client_request: request.clone(),
            conversation: ingested.conversation.clone(),
            target: target.clone(),
            sent_body: Bytes::new(),
            sent_tokens: 0,
            output_cap_tokens: None,
            refusals: 0,
            without_thinking: false,
            window,
            as_event: client_errors::wants_event(&request.endpoint, is_stream, &request.headers),
            client_compacts: ingested.client_compacts,
            is_fit_only,
            is_compacted: false,
        };
        let action = match self.shape_and_lower(&mut ingested, parsed, &proxy_request).await {
            Ok(shaped) => {
                if shaped.report.compaction == "applied" {
                    self.persist(&mut ingested).await;
                }
                shaped.forward(proxy_request)
            }
            Err(error) => self.handle_failure(error, &ingested, proxy_request),
        };
        // Writing to the session file overlaps with the model's work.
        self.finish_request(request, ingested, target);
        action
    }

    /// Whether a model name is too long to be stored. No real model has such a name.
    fn is_model_name_too_long(&self, model: &str) -> bool {
        model.len() > self.settings.model_name_max_bytes
    }

    /// The target that the prompt of a request is prepared for, and the window that its size is checked against.
    pub(super) fn target(
        &self,
        request: &ClientRequest,
        body: &ParsedBody<'_>,
        guard: &SessionGuard,
        is_fit_only: bool,
    ) -> (Target, ContextWindow) {
        let model = long_window::window_model_name(&body.model, &request.headers);
        let model = ModelName::new(&*request.provider, model);
        let window = requested_window(self.runtime.models().window(&model), body.window_tokens);
        let window_tokens = window.tokens;
        let window = match guard.context().accounting().learned_window(&model, window_tokens) {
            Some(LearnedWindow { tokens, is_stated, .. }) if tokens < window_tokens => {
                ContextWindow { tokens, is_certain: is_stated, ..window }
            }
            _ => window,
        };
        let settings = &self.settings;
        let reserve = |requested_tokens| self.reserve_tokens(requested_tokens, window.tokens);
        let target = Target {
            model,
            window_tokens,
            min_window_tokens: settings.learned_min_tokens,
            reserve_tokens: body.max_output_tokens.map(reserve),
            // The agent never asks for more output than its reserve; a client does, and its limit may be lowered.
            is_reserve_usable: true,
            output_tokens: if window.is_prompt_only {
                0
            } else {
                body.max_output_tokens.unwrap_or_default()
            },
            min_output_tokens: settings.lower_max_tokens.then_some(settings.min_output_tokens),
            overhead_tokens: self.overhead_tokens(body),
            may_be_shortened: body.provider_edits.may_shorten,
            compaction: self.compaction_policy(guard.context(), is_fit_only),
            ..Target::default()
        };
        (target, window)
    }

    /// When compaction may run while the prompt of a request is prepared.
    pub(super) fn compaction_policy(
        &self,
        context: &Context,
        is_fit_only: bool,
    ) -> CompactionPolicy {
        if is_fit_only {
            return CompactionPolicy::WhenNeeded;
        }
        // A turn is in progress if anything follows the last user message.
        let mid_turn = !context.view().last().is_some_and(|entry| entry.is_user_message());
        self.runtime.policy_for_client(mid_turn)
    }

    /// Handles a shaping error: rejects what cannot fit a certain window, fails on an engine error if the config says
    /// so, and forwards the request unchanged otherwise.
    fn handle_failure(
        &self,
        error: TurnError,
        ingested: &IngestedRequest,
        proxy_request: ProxyRequest,
    ) -> ProxyAction {
        let error = match error {
            TurnError::Context(ContextError::CannotFit(error))
                if proxy_request.window.is_certain =>
            {
                match self.reject_overflow(&error, ingested, &proxy_request) {
                    Some(response) => return ProxyAction::Respond(response),
                    None => TurnError::Context(error.into()),
                }
            }
            error => error,
        };
        let session = &ingested.session;
        if self.is_fatal(&error) {
            let endpoint = &proxy_request.client_request.endpoint;
            return ProxyAction::Respond(self.engine_failed(&error, endpoint, session));
        }
        if self.is_first_unshaped(SeededHash::new(self.seed, session)) {
            tracing::warn!(
                %error,
                session,
                "shaping failed: this request of a conversation and further ones that fail are forwarded unshaped"
            );
        }
        self.warn_small_window(&error, &proxy_request.target.model);
        let shaped = ShapedRequest {
            body: proxy_request.client_request.body.clone(),
            lowered: None,
            report: ShapingReport {
                label: ingested.conversation.label.get().cloned().unwrap_or_default(),
                ..ShapingReport::unshaped("failed", session)
            },
            tokens: ingested.conversation.state().known.client_tokens(),
        };
        shaped.forward(proxy_request)
    }

    /// The overflow error for a request that fits no plan, even with no output reserve; `None` if the middle estimate
    /// says that it may fit, so that the provider has to count.
    fn reject_overflow(
        &self,
        error: &EmergencyTrimError,
        ingested: &IngestedRequest,
        proxy_request: &ProxyRequest,
    ) -> Option<LocalResponse> {
        let context = ingested.guard.context();
        let overhead_tokens = proxy_request.target.overhead_tokens;
        let needed_tokens = overhead_tokens.saturating_add(error.needed_tokens);
        if context.expected_tokens(needed_tokens) <= proxy_request.window.tokens {
            return None;
        }
        tracing::info!(%error, session = ingested.session, "the request exceeds its window: rejected");
        let conversation_tokens = ingested.conversation.state().known.client_tokens();
        let all_tokens = overhead_tokens.saturating_add(conversation_tokens);
        let size =
            OverflowSize { conversation_tokens, tokens: context.expected_tokens(all_tokens) };
        Some(client_errors::overflow(proxy_request, &ingested.session, size))
    }
}

/// The window of a request that may ask for one: Ollama cuts a longer prompt without an error.
fn requested_window(known: ContextWindow, requested_tokens: Option<u64>) -> ContextWindow {
    let Some(tokens) = requested_tokens else { return known };
    let tokens = if known.is_certain { tokens.min(known.tokens) } else { tokens };
    ContextWindow { tokens, is_certain: true, ..known }
}
