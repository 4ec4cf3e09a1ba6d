//! Shapes an ingested request: prepares its prompt and renders it as the upstream's request body.

use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_conversations::{Conversation, ConversationLabel, KnownItems, PendingRequest};
use ctxhost_engine_api::{Action, Entry, EntryKind, Flags, Plan, PlanItem, Role, Transcript};

use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::messages::ShapingReport;
use super::removed_thinking::{has_removals, lost_tokens};
use super::request::{InFlightRequest, ProxyAction, ProxyRequest, UpstreamRequest};
use super::thinking::{ThinkingContext, ThinkingPlan, last_compacted_unit};
use ctxhost_agent::TurnError;
use ctxhost_blobs::ImageStore;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, LiveSession, Prompt};
use ctxhost_dialects::inbound::{
    EntryLocation, InboundDialect, ParsedBody, SourceBody, prepend_system, render_body,
};
use ctxhost_invariants::{self as invariants, EnforcedPlan, InvariantSettings};

/// A request that is ready for its upstream.
#[derive(Debug)]
pub(super) struct ShapedRequest {
    /// The body with the client's own output limit.
    pub(super) body: Bytes,
    /// The body with a lowered output limit, if it had to be lowered; this one is sent.
    pub(super) lowered: Option<Bytes>,
    pub(super) report: ShapingReport,
    /// Estimated tokens of the conversation in it.
    pub(super) tokens: u64,
}

impl ShapedRequest {
    /// Completes the state of a request that is sent to its upstream now.
    pub(super) fn forward(self, mut request: ProxyRequest) -> ProxyAction {
        let ShapedRequest { body, lowered, mut report, tokens } = self;
        request.is_compacted |= report.compaction == "applied";
        if request.is_compacted {
            // A retry reports the compaction of an earlier attempt, whose response the client never got.
            report.compaction = "applied";
        }
        if let Some(max_tokens) = report.max_tokens {
            request.target.output_tokens = max_tokens;
        }
        (request.sent_body, request.sent_tokens) = (body.clone(), tokens);
        let in_flight = InFlightRequest {
            pending: PendingRequest::new(&request.conversation),
            request: Some(Box::new(request)),
            stored_request: None,
            truncated_history: None,
            count_request: None,
        };
        let body = lowered.unwrap_or(body);
        ProxyAction::Forward(UpstreamRequest { body, report, in_flight })
    }
}

/// A client request and its parsed body.
#[derive(Clone, Copy)]
pub(super) struct ParsedRequest<'a> {
    pub(super) inbound: &'static dyn InboundDialect,
    pub(super) bytes: &'a Bytes,
    pub(super) json: &'a str,
    pub(super) body: &'a ParsedBody<'a>,
}

impl Proxy {
    /// Prepares the prompt of a request and renders it.
    pub(super) async fn shape(
        &self,
        ingested: &mut IngestedRequest,
        parsed: ParsedRequest<'_>,
        request: &ProxyRequest,
    ) -> Result<ShapedRequest, TurnError> {
        let headers = &request.client_request.headers;
        // Read first: a request that no engine can shape has a label too.
        let read_label = || {
            Arc::new(ConversationLabel::read(
                headers,
                parsed.json,
                &ingested.guard.context().view(),
            ))
        };
        let label = ingested.conversation.label.get_or_init(read_label).clone();
        if parsed.inbound.has_bound_thinking() {
            self.remove_thinking(ingested, &request.target)?;
        }
        let prompt = ingested.guard.prepare(&request.target).await?;
        let session = ingested.guard.context().session();
        let context = self.render_context(&ingested.conversation, session, parsed.inbound);
        let is_whole = session.is_whole();
        let is_unchanged = record_shaping(&ingested.conversation, &prompt, is_whole)
            && !context.has_removed_thinking
            && prompt.system_addition().is_none();
        let (view, enforced) = (&prompt.view, &prompt.checked);
        let report = ShapingReport {
            engine: prompt.engine.clone(),
            tokens: Some(enforced.tokens),
            before_tokens: Some(ingested.conversation.state().known.client_tokens()),
            compaction: compaction_label(&prompt.compactions, ingested.client_compacts),
            session: ingested.session.clone(),
            label,
            max_tokens: None,
        };
        if is_unchanged {
            // The same `Bytes`, not equal ones: `CompressedBody` recognizes an unchanged body by its
            // pointer.
            let body = parsed.bytes.clone();
            ingested.conversation.state().lost_thinking_tokens = 0;
            return Ok(ShapedRequest { body, lowered: None, report, tokens: enforced.tokens });
        }
        // A snapshot, because rendering takes long and other requests match against the state meanwhile.
        let known_items = ingested.conversation.known_items();
        let enforced =
            keep_last_answer(enforced, view, prompt.budget_tokens, &self.config.invariants);
        let rendered = render_request_body(parsed, &known_items, &enforced, view, &context);
        let RenderedRequest { body, tokens, lost_thinking_tokens } = rendered;
        let body = match prompt.system_addition() {
            Some(text) => prepend_system(parsed.inbound.system_place(), body, text),
            None => body,
        };
        ingested.conversation.state().lost_thinking_tokens = lost_thinking_tokens;
        let report = ShapingReport { tokens: Some(tokens), ..report };
        Ok(ShapedRequest { body: body.into(), lowered: None, report, tokens })
    }

    /// What the renderer needs beside the plan.
    pub(super) fn render_context(
        &self,
        conversation: &Conversation,
        session: &LiveSession,
        inbound: &dyn InboundDialect,
    ) -> RenderContext {
        let (compacted, has_removed_thinking) = if inbound.has_bound_thinking() {
            let compacted = last_compacted_unit(session, &conversation.known_items());
            (compacted, compacted.is_some() && has_removals(session.session()))
        } else {
            (None, false)
        };
        let refused = self.refused_thinking(&session.reference().id);
        RenderContext { images: session.images().clone(), compacted, refused, has_removed_thinking }
    }
}

/// What the renderer needs beside the plan.
#[derive(Debug)]
pub(super) struct RenderContext {
    images: ImageStore,
    /// The last item group before the latest compaction, or before the latest removal of thinking from the session.
    compacted: Option<usize>,
    /// The number of item groups whose thinking the upstream rejected.
    refused: usize,
    /// Whether thinking was removed from the session, so that the client's bytes are not what it has.
    pub(super) has_removed_thinking: bool,
}

/// A rendered request.
#[derive(Debug)]
pub(super) struct RenderedRequest {
    pub(super) body: Vec<u8>,
    /// Estimated tokens of the conversation in it.
    pub(super) tokens: u64,
    /// Estimated tokens of the thinking that the plan has and the body has not.
    pub(super) lost_thinking_tokens: u64,
}

/// The request body that a plan makes of the client's.
pub(super) fn render_request_body(
    parsed: ParsedRequest<'_>,
    known_items: &KnownItems,
    enforced: &EnforcedPlan,
    view: &Transcript,
    context: &RenderContext,
) -> RenderedRequest {
    let RenderContext { images, compacted, refused, .. } = context;
    let items = enforced.items(view);
    let thinking = if parsed.inbound.has_bound_thinking() {
        let context =
            ThinkingContext { known_items, view, compacted: *compacted, refused: *refused };
        ThinkingPlan::new(context, &items)
    } else {
        ThinkingPlan::default()
    };
    let lost_thinking_tokens = lost_tokens(&thinking, known_items, &items);
    let items: Vec<PlanItem<'_>> =
        items.into_iter().map(|item| with_client_text(item, known_items)).collect();
    let body = render_items(parsed, known_items, &items, images, &thinking);
    let body = if thinking.is_off { parsed.inbound.disable_thinking(body) } else { body };
    let tokens = enforced.tokens.saturating_sub(lost_thinking_tokens);
    RenderedRequest { body, tokens, lost_thinking_tokens }
}

/// The client's body with its items replaced by these.
pub(super) fn render_items(
    parsed: ParsedRequest<'_>,
    known_items: &KnownItems,
    items: &[PlanItem<'_>],
    images: &ImageStore,
    thinking: &ThinkingPlan,
) -> Vec<u8> {
    let ParsedRequest { json, body, .. } = parsed;
    let without_thinking = &thinking.without;
    let written = SourceBody {
        json,
        body,
        groups: known_items.groups(),
        groups_without_thinking: without_thinking,
    };
    let place = |entry: &Entry<'_>| -> Option<EntryLocation> { known_items.location(entry.id()) };
    let message = |raw: &str| serde_json::from_str(&images.load_images(raw)).ok();
    render_body(parsed.inbound, written, items, &place, &message)
}

/// Renders an entry that a compaction changed from its entry. An entry that the client itself changed keeps the client's
/// bytes.
pub(super) fn with_client_text<'a>(item: PlanItem<'a>, known_items: &KnownItems) -> PlanItem<'a> {
    match item {
        PlanItem::Kept(entry) if known_items.has_client_text(&entry) => PlanItem::Kept(entry),
        PlanItem::Kept(entry) if entry.has(Flags::REPLACED) => match entry.kind() {
            EntryKind::Message => PlanItem::ReplacedRaw { entry, raw: entry.raw() },
            _ => PlanItem::ReplacedText { entry, text: entry.text() },
        },
        other => other,
    }
}

/// Whether a plan keeps every entry, so that the client's bytes can be sent.
pub(super) fn is_untouched(
    enforced: &EnforcedPlan,
    view: &Transcript,
    known_items: &KnownItems,
) -> bool {
    // The plan's invariant repairs (order, missing or extra results) do not count: the provider accepts this history or
    // rejects it, and the client must see which.
    shows_all_entries(view, known_items) && keeps_all(&enforced.plan, view.len() as u64)
}

/// Whether the live entries are exactly the client's: none is folded into a summary.
fn shows_all_entries(view: &Transcript, known_items: &KnownItems) -> bool {
    let is_clients = |entry: Entry<'_>| {
        let is_as_written = !entry.has(Flags::REPLACED) || known_items.has_client_text(&entry);
        known_items.location(entry.id()).is_some() && is_as_written
    };
    view.len() == known_items.entry_count() || view.iter().all(is_clients)
}

/// Records in the conversation how its request was shaped. Returns whether the client's bytes are sent. `is_whole` is
/// [`LiveSession::is_whole`].
fn record_shaping(conversation: &Conversation, prompt: &Prompt, is_whole: bool) -> bool {
    let is_untouched = is_untouched(&prompt.checked, &prompt.view, &conversation.known_items());
    let mut state = conversation.state();
    if prompt.compactions.iter().any(|outcome| outcome.verdict == CompactionVerdict::Applied) {
        state.is_compacted = true;
    }
    (is_whole || !state.is_compacted) && is_untouched
}

fn keeps_all(plan: &Plan, entries: u64) -> bool {
    let mut next = 0;
    for op in &plan.ops {
        match &op.action {
            Action::Keep(range) if range.start == next || range.is_empty() => {
                next = next.max(range.end);
            }
            Action::Drop(range) if range.is_empty() => {}
            _ => return false,
        }
    }
    next == entries
}

/// Adds the model's last answer to a plan that drops it, if it fits.
///
/// With thinking enabled, Anthropic rejects a tool loop whose last answer has no thinking block (rule A-14 in
/// `tests/src/rules/anthropic.rs`), and earlier answers have lost theirs already.
fn keep_last_answer(
    enforced: &EnforcedPlan,
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> EnforcedPlan {
    let Some(last) = view.iter().rev().find(|entry| entry.role() == Role::Assistant) else {
        return enforced.clone();
    };
    let seq = last.seq();
    let keeps = |action: &Action| match action {
        Action::Keep(range) => range.contains(&seq),
        Action::ReplaceText { seq: replaced, .. } | Action::ReplaceRaw { seq: replaced, .. } => {
            *replaced == seq
        }
        _ => false,
    };
    if enforced.plan.ops.iter().any(|op| keeps(&op.action)) {
        return enforced.clone();
    }
    let mut plan = Plan { extras: enforced.plan.extras.clone(), ..Plan::default() };
    let mut is_added = false;
    for op in &enforced.plan.ops {
        let range = op.action.range();
        let is_after = !matches!(op.action, Action::Insert { .. }) && range.start > seq;
        if is_after && !is_added {
            plan.keep(seq..seq + 1);
            is_added = true;
        }
        // A plan drops what it does not keep, so its explicit drops are redundant; one of them may cover `seq`.
        if !matches!(op.action, Action::Drop(_)) {
            plan.ops.push(op.clone());
        }
    }
    if !is_added {
        plan.keep(seq..seq + 1);
    }
    match invariants::enforce(view, plan, budget_tokens, settings) {
        Ok(extended) if extended.tokens <= budget_tokens => extended,
        _ => enforced.clone(),
    }
}

/// The value of `x-ctxhost-compaction`: an applied compaction, else the last one.
pub(super) fn compaction_label(
    outcomes: &[CompactionOutcome],
    client_compacts: bool,
) -> &'static str {
    let is_applied = |outcome: &&CompactionOutcome| outcome.verdict == CompactionVerdict::Applied;
    match outcomes.iter().rev().find(is_applied).or(outcomes.last()) {
        Some(outcome) => match outcome.verdict {
            CompactionVerdict::Applied => "applied",
            CompactionVerdict::Rejected { .. } => "rejected",
            CompactionVerdict::NotTried { .. } => "failed",
        },
        None if client_compacts => "client",
        None => "none",
    }
}
