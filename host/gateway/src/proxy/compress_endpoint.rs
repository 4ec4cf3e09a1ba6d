//! Compresses the messages of a client that calls its model itself (`POST /v1/compress`).

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_conversations::{BadSessionId, RequestItems, session_scope};
use ctxhost_engine_api::PlanItem;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use serde_json::json;

use super::blocking_pool::{is_large, run_blocking};
use super::core::Proxy;
use super::ingest::{IngestedRequest, RequestMeta};
use super::messages::{ClientRequest, ShapingReport};
use super::references::OriginalReferences;
use super::shaping::{
    ParsedRequest, compaction_label, is_untouched, render_items, with_client_text,
};
use super::thinking::ThinkingPlan;
use ctxhost_agent::TurnError;
use ctxhost_blobs::BlobError;
use ctxhost_context::{CompactionOutcome, CompactionPolicy, CompactionVerdict, Prompt, Target};
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_models::ModelName;
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of records that reference originals, which keeps the garbage collector from deleting those.
const RECORD: &str = "ctxhost.originals";

/// Attempts without references. The first may still be too large by what the invariants add.
const UNMARKED_TRIES: u32 = 2;

/// The limits that a client sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionLimits {
    /// The limit for all messages, in estimated tokens; `None` for what the window leaves.
    pub target_tokens: Option<NonZeroU64>,
    /// The window, in provider tokens; `None` for the model's.
    pub window_tokens: Option<NonZeroU64>,
}

/// Compressed messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedMessages {
    /// The body with them; the client's own bytes if nothing changed.
    pub body: Bytes,
    /// Estimated tokens before, with the system prompt.
    pub before_tokens: u64,
    /// Estimated tokens after, with the system prompt.
    pub after_tokens: u64,
    /// How they were shaped.
    pub report: ShapingReport,
}

/// Why a compression failed with an error for the client.
#[derive(Debug, thiserror::Error)]
pub enum CompressError {
    /// The session id is invalid.
    #[error(transparent)]
    Session(#[from] BadSessionId),
    /// The engine failed and `on_engine_error` is `fail`.
    #[error(transparent)]
    Engine(TurnError),
}

/// Why messages are returned unchanged.
#[derive(Debug, thiserror::Error)]
enum FitError {
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Originals(#[from] BlobError),
    #[error("the smallest form has {} tokens, more than the limit of {}", group_thousands(*tokens), group_thousands(*budget_tokens))]
    Target {
        /// Tokens of the smallest form.
        tokens: u64,
        /// The limit.
        budget_tokens: u64,
    },
}

impl Proxy {
    /// Compresses the messages of a request; `None` if they are returned unchanged.
    ///
    /// # Errors
    ///
    /// [`CompressError`].
    pub async fn compress(
        self: &Arc<Self>,
        request: &ClientRequest,
        limits: CompressionLimits,
    ) -> Result<Option<CompressedMessages>, CompressError> {
        let compressed = if is_large(request) {
            let (proxy, request) = (self.clone(), request.clone());
            run_blocking(async move { proxy.compress_messages(&request, limits).await }).await
        } else {
            self.compress_messages(request, limits).await
        };
        self.start_eviction();
        compressed
    }

    async fn compress_messages(
        self: &Arc<Self>,
        request: &ClientRequest,
        limits: CompressionLimits,
    ) -> Result<Option<CompressedMessages>, CompressError> {
        let Ok(json) = std::str::from_utf8(&request.body) else { return Ok(None) };
        let inbound = request.endpoint.inbound();
        let body = request.endpoint.parse_body(json).ok();
        let scope =
            session_scope(&request.headers, body.as_ref().and_then(|body| body.session_hint))?;
        let Some(body) = body.filter(|body| !body.items.is_empty()) else { return Ok(None) };
        let mut request_items = RequestItems::new(self.seed, &body.items);
        let key = self.conversation_key(scope.as_deref(), &mut request_items);
        let meta = RequestMeta {
            inbound,
            headers: &request.headers,
            key,
            scope: scope.as_deref(),
            ignored_items: &body.ignored_items,
            provider_compacts: body.provider_edits.may_compact,
        };
        let mut ingested = match self.ingest(&meta, &mut request_items).await {
            Ok(ingested) => ingested,
            Err(error) => {
                tracing::warn!(%error, "ingest failed: the messages are returned uncompressed");
                return Ok(None);
            }
        };
        let target = self.compression_target(request, &body, &ingested, limits);
        let parsed = ParsedRequest { inbound, bytes: &request.body, json, body: &body };
        match self.compress_to_fit(&mut ingested, parsed, target.clone()).await {
            Ok(compressed) => {
                self.finish_request(request, ingested, target);
                Ok(Some(compressed))
            }
            Err(FitError::Turn(error)) if self.is_fatal(&error) => {
                Err(CompressError::Engine(error))
            }
            Err(error) => {
                let session = &ingested.session;
                tracing::warn!(%error, session, "compression failed: the messages are returned unchanged");
                Ok(None)
            }
        }
    }

    fn compression_target(
        &self,
        request: &ClientRequest,
        body: &ParsedBody<'_>,
        ingested: &IngestedRequest,
        limits: CompressionLimits,
    ) -> Target {
        let (mut target, _) = self.target(request, body, &ingested.guard, ingested.is_fit_only());
        let window = limits.window_tokens.map(NonZeroU64::get);
        if let Some(tokens) = window.filter(|tokens| *tokens != target.window_tokens) {
            // A separate model name, so that windows learned under it do not affect the real model.
            target.model = ModelName::new("compress", format!("{}@{tokens}", target.model.id));
            target.window_tokens = tokens;
        }
        let target_tokens = limits.target_tokens.map(NonZeroU64::get);
        target.max_tokens =
            target_tokens.map(|tokens| tokens.saturating_sub(target.overhead_tokens));
        target.requested_tokens = target.max_tokens;
        target
    }

    /// Shapes messages until they fit together with their references, and so that the same messages get the same bytes
    /// again: an engine keeps what it left out in a smaller attempt, and another request begins from there.
    async fn compress_to_fit(
        &self,
        ingested: &mut IngestedRequest,
        parsed: ParsedRequest<'_>,
        mut target: Target,
    ) -> Result<CompressedMessages, FitError> {
        let mut fitted = self.fit(ingested, parsed, target.clone()).await?;
        target.compaction = CompactionPolicy::WhenNeeded;
        for _ in 0..self.settings.compress_tries {
            if fitted.attempts == 1 {
                break;
            }
            let again = self.fit(ingested, parsed, target.clone()).await?;
            let is_stable = again.messages.body == fitted.messages.body;
            let is_applied = fitted.is_applied || again.is_applied;
            fitted = FittedMessages { is_applied, ..again };
            if is_stable {
                break;
            }
        }
        let FittedMessages { messages, prompt, is_applied, .. } = fitted;
        if is_applied || !messages.originals.is_empty() {
            self.persist(ingested).await;
        }
        self.store_originals(ingested, messages.originals).await?;
        let compaction = if is_applied {
            "applied"
        } else {
            compaction_label(&prompt.compactions, ingested.client_compacts)
        };
        let conversation_tokens = ingested.conversation.state().known.client_tokens();
        let report = ShapingReport {
            engine: prompt.engine,
            tokens: Some(messages.tokens),
            before_tokens: Some(conversation_tokens),
            compaction,
            session: ingested.session.clone(),
            ..ShapingReport::default()
        };
        Ok(CompressedMessages {
            body: messages.body,
            before_tokens: conversation_tokens + target.overhead_tokens,
            after_tokens: messages.tokens + target.overhead_tokens,
            report,
        })
    }

    /// Shapes messages in smaller and smaller attempts until they fit.
    async fn fit(
        &self,
        ingested: &mut IngestedRequest,
        parsed: ParsedRequest<'_>,
        mut target: Target,
    ) -> Result<FittedMessages, FitError> {
        let (mut budget_tokens, mut is_applied) = (None, false);
        let limit_tokens = target.max_tokens;
        let mut error = FitError::Target { tokens: 0, budget_tokens: 0 };
        for number in 0..self.settings.compress_tries + UNMARKED_TRIES {
            let has_references = number < self.settings.compress_tries;
            // The references do not fit into any form: drop them. The limit is a promise, the originals a convenience.
            if number == self.settings.compress_tries {
                target.max_tokens = limit_tokens;
            }
            let prompt = ingested.guard.prepare(&target).await?;
            let applied =
                |outcome: &CompactionOutcome| outcome.verdict == CompactionVerdict::Applied;
            is_applied |= prompt.compactions.iter().any(applied);
            // Set before rendering: a compacted conversation is never returned as the client's own
            // bytes.
            if is_applied {
                ingested.conversation.state().is_compacted = true;
            }
            // The first budget counts; later ones are lowered to make room for the references.
            let budget_tokens = *budget_tokens.get_or_insert(prompt.budget_tokens);
            let rendered = render(ingested, parsed, &prompt, has_references);
            if rendered.tokens > budget_tokens {
                error = FitError::Target { tokens: rendered.tokens, budget_tokens };
                let over_tokens = rendered.tokens - budget_tokens;
                target.max_tokens = Some(prompt.budget_tokens.saturating_sub(over_tokens));
                continue;
            }
            return Ok(FittedMessages {
                messages: rendered,
                prompt,
                attempts: number + 1,
                is_applied,
            });
        }
        Err(error)
    }

    /// Stores originals and references them in the session.
    async fn store_originals(
        &self,
        ingested: &mut IngestedRequest,
        originals: Vec<String>,
    ) -> Result<(), FitError> {
        if originals.is_empty() {
            return Ok(());
        }
        let (store, session) = (self.originals.clone(), ingested.session.clone());
        let stored = tokio::task::spawn_blocking(move || store.store(&session, &originals));
        let handles = match stored.await {
            Ok(handles) => handles?,
            // The runtime shuts down.
            Err(_) => return Ok(()),
        };
        if !handles.is_empty() {
            let record = RecordBody::custom(RECORD, &json!({ "handles": handles }));
            ingested.guard.append([record])?;
        }
        Ok(())
    }
}

/// Messages that fit.
struct FittedMessages {
    messages: RenderedMessages,
    prompt: Prompt,
    /// The number of attempts that it took.
    attempts: u32,
    /// Whether a compaction was applied in any of them.
    is_applied: bool,
}

/// The messages of one attempt.
struct RenderedMessages {
    body: Bytes,
    tokens: u64,
    originals: Vec<String>,
}

fn render(
    ingested: &IngestedRequest,
    parsed: ParsedRequest<'_>,
    prompt: &Prompt,
    has_references: bool,
) -> RenderedMessages {
    let (known_items, is_compacted) =
        (ingested.conversation.known_items(), ingested.conversation.state().is_compacted);
    let (enforced, view) = (&prompt.checked, &prompt.view);
    let session = ingested.guard.context().session();
    let is_whole = session.is_whole() || !is_compacted;
    if is_whole && is_untouched(enforced, view, &known_items) {
        let body = parsed.bytes.clone();
        return RenderedMessages { body, tokens: enforced.tokens, originals: Vec::new() };
    }
    let items: Vec<PlanItem<'_>> =
        enforced.items(view).into_iter().map(|item| with_client_text(item, &known_items)).collect();
    let references = if has_references {
        OriginalReferences::new(&items, &known_items, session.session())
    } else {
        OriginalReferences::empty(items.len())
    };
    let items = references.apply(&items);
    let body =
        render_items(parsed, &known_items, &items, session.images(), &ThinkingPlan::default());
    let tokens = items.iter().map(PlanItem::tokens).sum();
    drop(items);
    RenderedMessages { body: body.into(), tokens, originals: references.originals }
}

#[cfg(test)]
mod tests;
