//! Messages that somebody wants smaller and sends to their model alone.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_engine_api::PlanItem;
use serde_json::json;

use super::core::Proxy;
use super::ingest::{IngestedRequest, RequestMeta};
use super::references::OriginalReferences;
use super::shaping::{
    ParsedRequest, compaction_label, is_untouched, render_items, with_client_text,
};
use super::thinking::ThinkingPlan;
use super::{ClientRequest, ShapingReport};
use crate::conversations::{BadSessionId, RequestItems, session_scope};
use ctxhost_agent::TurnError;
use ctxhost_blobs::BlobError;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, Prompt, Target};
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_models::ModelName;
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of the records that name originals, so that nobody clears them away.
const RECORD: &str = "ctxhost.originals";

/// How often messages are shaped whose originals get no mark: what a law adds by itself may still be too much
/// the first time.
const UNMARKED_TRIES: u32 = 2;

/// How small messages are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionLimits {
    /// What all of them may take at the most, as entries count; `None` for what the window leaves.
    pub target_tokens: Option<NonZeroU64>,
    /// The window they go into, in provider tokens; `None` for that of the model.
    pub window_tokens: Option<NonZeroU64>,
}

/// Messages that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedMessages {
    /// The body with them; the very bytes that came where nothing had to be done.
    pub body: Bytes,
    /// What they took with their system prompt, as entries count.
    pub before_tokens: u64,
    /// What they take now.
    pub after_tokens: u64,
    /// Who made them so.
    pub report: ShapingReport,
}

/// Why nobody says what would become of messages.
#[derive(Debug, thiserror::Error)]
pub enum CompressError {
    /// They are said to be of a session that cannot be.
    #[error(transparent)]
    Session(#[from] BadSessionId),
    /// The engine failed and `on_engine_error` is `fail`.
    #[error(transparent)]
    Engine(TurnError),
}

/// Why messages stay as they came.
#[derive(Debug, thiserror::Error)]
enum FitError {
    #[error(transparent)]
    Turn(#[from] TurnError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Originals(#[from] BlobError),
    #[error("they take {tokens} tokens without any mark, and {budget_tokens} are wanted")]
    Target {
        /// What they take.
        tokens: u64,
        /// What they may take.
        budget_tokens: u64,
    },
}

impl Proxy {
    /// Makes the messages of a request fit; `None` where they stay as they came.
    pub(super) async fn compress(
        self: &Arc<Self>,
        incoming: &ClientRequest,
        wish: CompressionLimits,
    ) -> Result<Option<CompressedMessages>, CompressError> {
        let Ok(json) = std::str::from_utf8(&incoming.body) else { return Ok(None) };
        let speech = incoming.endpoint.inbound();
        let body = speech.parse_body(json).ok();
        let scope =
            session_scope(&incoming.headers, body.as_ref().and_then(|body| body.session_hint))?;
        let Some(body) = body.filter(|body| !body.items.is_empty()) else { return Ok(None) };
        let mut asked = RequestItems::new(self.seed, &body.items);
        let key = self.conversation_key(scope.as_deref(), &mut asked);
        let words = RequestMeta { inbound: speech, headers: &incoming.headers, key };
        let mut heard = match self.ingest(&words, &mut asked).await {
            Ok(heard) => heard,
            Err(error) => {
                tracing::warn!(%error, "messages are given back without the engine");
                return Ok(None);
            }
        };
        let target = self.compression_target(incoming, &body, &heard, wish);
        let came = ParsedRequest { inbound: speech, bytes: &incoming.body, json, body: &body };
        match self.compress_to_fit(&mut heard, came, target.clone()).await {
            Ok(compressed) => {
                self.finish_request(incoming, heard, target);
                Ok(Some(compressed))
            }
            Err(FitError::Turn(error)) if self.is_fatal(&error) => {
                Err(CompressError::Engine(error))
            }
            Err(error) => {
                let session = &heard.session;
                tracing::warn!(%error, session, "messages are given back without the engine");
                Ok(None)
            }
        }
    }

    fn compression_target(
        &self,
        incoming: &ClientRequest,
        body: &ParsedBody<'_>,
        heard: &IngestedRequest,
        wish: CompressionLimits,
    ) -> Target {
        let (mut target, _) = self.target(incoming, body, &heard.guard, heard.is_fit_only());
        let window = wish.window_tokens.map(NonZeroU64::get);
        if let Some(tokens) = window.filter(|tokens| *tokens != target.window_tokens) {
            // What is learned of a model belongs to its own window.
            target.model = ModelName::new("compress", format!("{}@{tokens}", target.model.id));
            target.window_tokens = tokens;
        }
        let wanted = wish.target_tokens.map(NonZeroU64::get);
        target.max_tokens = wanted.map(|tokens| tokens.saturating_sub(target.overhead_tokens));
        target
    }

    /// Shapes messages until they fit with the marks of what was replaced. Where marks take more than each
    /// smaller form leaves, the last form goes without them: a target is kept, and an original is a convenience.
    async fn compress_to_fit(
        &self,
        heard: &mut IngestedRequest,
        came: ParsedRequest<'_>,
        mut target: Target,
    ) -> Result<CompressedMessages, FitError> {
        let (mut budget_tokens, mut is_applied) = (None, false);
        let wished_tokens = target.max_tokens;
        let mut over = FitError::Target { tokens: 0, budget_tokens: 0 };
        for number in 0..self.settings.compress_tries + UNMARKED_TRIES {
            let is_marked = number < self.settings.compress_tries;
            if number == self.settings.compress_tries {
                target.max_tokens = wished_tokens;
            }
            let prompt = heard.guard.prepare(&target).await?;
            let applied = |it: &CompactionOutcome| it.verdict == CompactionVerdict::Applied;
            is_applied |= prompt.compactions.iter().any(applied);
            heard.conversation.state().is_compacted |= is_applied;
            let budget_tokens = *budget_tokens.get_or_insert(prompt.budget_tokens);
            let written = render(heard, came, &prompt, is_marked);
            if written.tokens > budget_tokens {
                over = FitError::Target { tokens: written.tokens, budget_tokens };
                let over_tokens = written.tokens - budget_tokens;
                target.max_tokens = Some(prompt.budget_tokens.saturating_sub(over_tokens));
                continue;
            }
            if is_applied || !written.originals.is_empty() {
                self.persist(heard).await;
            }
            self.store_originals(heard, written.originals).await?;
            let told = if is_applied {
                "applied"
            } else {
                compaction_label(&prompt.compactions, heard.is_fit_only())
            };
            let said_tokens = heard.conversation.state().known.client_tokens();
            let truth = ShapingReport {
                engine: prompt.engine.clone(),
                tokens: Some(written.tokens),
                before_tokens: Some(said_tokens),
                compaction: told,
                session: heard.session.clone(),
                max_tokens: None,
            };
            return Ok(CompressedMessages {
                body: written.body,
                before_tokens: said_tokens + target.overhead_tokens,
                after_tokens: written.tokens + target.overhead_tokens,
                report: truth,
            });
        }
        Err(over)
    }

    /// Puts originals away, and says in the session that they are of use.
    async fn store_originals(
        &self,
        heard: &mut IngestedRequest,
        originals: Vec<String>,
    ) -> Result<(), FitError> {
        if originals.is_empty() {
            return Ok(());
        }
        let (kept, session) = (self.originals.clone(), heard.session.clone());
        let put = tokio::task::spawn_blocking(move || kept.store(&session, &originals));
        let handles = match put.await {
            Ok(handles) => handles?,
            // Only where the process ends.
            Err(_) => return Ok(()),
        };
        if !handles.is_empty() {
            let named = RecordBody::custom(RECORD, &json!({ "handles": handles }));
            heard.guard.append([named])?;
        }
        Ok(())
    }
}

/// Messages as they would be given back.
struct RenderedMessages {
    body: Bytes,
    tokens: u64,
    originals: Vec<String>,
}

fn render(
    heard: &IngestedRequest,
    came: ParsedRequest<'_>,
    prompt: &Prompt,
    is_marked: bool,
) -> RenderedMessages {
    let (outline, is_compacted) =
        (heard.conversation.known_items(), heard.conversation.state().is_compacted);
    let (lawful, view) = (&prompt.checked, &prompt.view);
    if !is_compacted && is_untouched(lawful, view, &outline) {
        let body = came.bytes.clone();
        return RenderedMessages { body, tokens: lawful.tokens, originals: Vec::new() };
    }
    let session = heard.guard.context().session();
    let items: Vec<PlanItem<'_>> =
        lawful.items(view).into_iter().map(|item| with_client_text(item, &outline)).collect();
    let marks = match is_marked {
        true => OriginalReferences::new(&items, &outline, session.session()),
        false => OriginalReferences::empty(items.len()),
    };
    let items = marks.apply(&items);
    let body = render_items(came, &outline, &items, session.images(), &ThinkingPlan::default());
    let tokens = items.iter().map(PlanItem::tokens).sum();
    drop(items);
    RenderedMessages { body: body.into(), tokens, originals: marks.originals }
}
