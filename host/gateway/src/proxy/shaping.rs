//! A conversation that was heard becomes the request that its upstream is sent.

use axum::body::Bytes;
use ctxhost_engine_api::{Action, Entry, EntryKind, Flags, Plan, PlanItem, Role, Transcript};

use super::ShapingReport;
use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::thinking::{ThinkingContext, ThinkingPlan, last_compacted_unit};
use crate::conversations::{Conversation, KnownItems};
use ctxhost_agent::TurnError;
use ctxhost_blobs::ImageStore;
use ctxhost_context::{CompactionOutcome, CompactionVerdict, LiveSession, Prompt, Target};
use ctxhost_dialects::inbound::{
    EntryLocation, InboundDialect, ParsedBody, SourceBody, render_body,
};
use ctxhost_invariants::{self as invariants, EnforcedPlan, InvariantSettings};

/// A request as it goes out.
#[derive(Debug)]
pub(super) struct ShapedRequest {
    /// Its body, asking for the answer that its client asks for.
    pub(super) body: Bytes,
    /// Its body asking for a shorter one, where that goes out.
    pub(super) lowered: Option<Bytes>,
    /// The truth about it.
    pub(super) report: ShapingReport,
    /// What it has of the conversation, as entries count.
    pub(super) tokens: u64,
}

/// A request as it came.
#[derive(Clone, Copy)]
pub(super) struct ParsedRequest<'a> {
    pub(super) inbound: &'static dyn InboundDialect,
    pub(super) bytes: &'a Bytes,
    pub(super) json: &'a str,
    pub(super) body: &'a ParsedBody<'a>,
}

impl Proxy {
    /// Has a prompt prepared and writes it as the body of a request.
    pub(super) async fn shape(
        &self,
        heard: &mut IngestedRequest,
        came: ParsedRequest<'_>,
        target: &Target,
    ) -> Result<ShapedRequest, TurnError> {
        let prompt = heard.guard.prepare(target).await?;
        let is_as_it_came = record_shaping(&heard.conversation, &prompt);
        let (view, lawful) = (&prompt.view, &prompt.checked);
        let truth = ShapingReport {
            engine: prompt.engine.clone(),
            tokens: Some(lawful.tokens),
            before_tokens: Some(heard.conversation.state().known.client_tokens()),
            compaction: compaction_label(&prompt.compactions, heard.client_compacts),
            session: heard.session.clone(),
            max_tokens: None,
        };
        if is_as_it_came {
            let body = came.bytes.clone();
            return Ok(ShapedRequest { body, lowered: None, report: truth, tokens: lawful.tokens });
        }
        let session = heard.guard.context().session();
        let surroundings = self.render_context(&heard.conversation, session, came.inbound);
        // Writing the body takes long, and new conversations are held against this one meanwhile.
        let outline = heard.conversation.known_items();
        let lawful = keep_last_answer(lawful, view, prompt.budget_tokens, &self.config.invariants);
        let body = render_request_body(came, &outline, &lawful, view, &surroundings);
        let truth = ShapingReport { tokens: Some(lawful.tokens), ..truth };
        Ok(ShapedRequest { body: body.into(), lowered: None, report: truth, tokens: lawful.tokens })
    }

    /// What a body is written with.
    pub(super) fn render_context(
        &self,
        thread: &Conversation,
        session: &LiveSession,
        speech: &dyn InboundDialect,
    ) -> RenderContext {
        let compacted = match speech.has_bound_thinking() {
            true => last_compacted_unit(session.session(), &thread.known_items()),
            false => None,
        };
        let refused = self.refused_thinking(&session.reference().id);
        RenderContext { images: session.images().clone(), compacted, refused }
    }
}

/// What a body is written with, beside its words.
#[derive(Debug)]
pub(super) struct RenderContext {
    images: ImageStore,
    /// The unit behind which the conversation was compacted last.
    compacted: Option<usize>,
    /// How many units there were when their thinking was refused.
    refused: usize,
}

/// The body that a lawful plan makes of the one that came.
pub(super) fn render_request_body(
    came: ParsedRequest<'_>,
    outline: &KnownItems,
    lawful: &EnforcedPlan,
    view: &Transcript,
    surroundings: &RenderContext,
) -> Vec<u8> {
    let RenderContext { images, compacted, refused } = surroundings;
    let items = lawful.items(view);
    let thinking = match came.inbound.has_bound_thinking() {
        true => {
            let told = ThinkingContext { outline, view, compacted: *compacted, refused: *refused };
            ThinkingPlan::new(told, &items)
        }
        false => ThinkingPlan::default(),
    };
    let items: Vec<PlanItem<'_>> =
        items.into_iter().map(|item| with_client_text(item, outline)).collect();
    let body = render_items(came, outline, &items, images, &thinking);
    if thinking.is_off { came.inbound.disable_thinking(body) } else { body }
}

/// The body with these items in the place of those that came.
pub(super) fn render_items(
    came: ParsedRequest<'_>,
    outline: &KnownItems,
    items: &[PlanItem<'_>],
    images: &ImageStore,
    thinking: &ThinkingPlan,
) -> Vec<u8> {
    let ParsedRequest { json, body, .. } = came;
    let without_thinking = &thinking.without;
    let written = SourceBody {
        json,
        body,
        groups: outline.groups(),
        groups_without_thinking: without_thinking,
    };
    let place = |entry: &Entry<'_>| -> Option<EntryLocation> { outline.location(entry.id()) };
    let message = |raw: &str| serde_json::from_str(&images.load_images(raw)).ok();
    render_body(came.inbound, written, items, &place, &message)
}

/// What a compaction made another entry of is not what the client wrote. What the client has replaced itself is.
pub(super) fn with_client_text<'a>(item: PlanItem<'a>, outline: &KnownItems) -> PlanItem<'a> {
    match item {
        PlanItem::Kept(entry) if outline.has_client_text(entry.id(), entry.text()) => {
            PlanItem::Kept(entry)
        }
        PlanItem::Kept(entry) if entry.has(Flags::REPLACED) => match entry.kind() {
            EntryKind::Message => PlanItem::ReplacedRaw { entry, raw: entry.raw() },
            _ => PlanItem::ReplacedText { entry, text: entry.text() },
        },
        other => other,
    }
}

/// Whether the client's own bytes say what the plan says.
///
/// What the law would have settled in them (an order, a result that is missing or one too many) is the
/// client's own doing, and its provider has the last word on it.
pub(super) fn is_untouched(lawful: &EnforcedPlan, view: &Transcript, outline: &KnownItems) -> bool {
    shows_all_entries(view, outline) && keeps_all(&lawful.plan, view.len() as u64)
}

/// Whether what is live is what the client said: nothing is folded. A result that some agent has made up
/// is no entry.
fn shows_all_entries(view: &Transcript, outline: &KnownItems) -> bool {
    let is_said = |entry: Entry<'_>| {
        let is_as_written =
            !entry.has(Flags::REPLACED) || outline.has_client_text(entry.id(), entry.text());
        outline.location(entry.id()).is_some() && is_as_written
    };
    view.len() == outline.entry_count() || view.iter().all(is_said)
}

/// Notes of a conversation how its request was shaped; whether that goes out as it came.
fn record_shaping(thread: &Conversation, prompt: &Prompt) -> bool {
    let is_untouched = is_untouched(&prompt.checked, &prompt.view, &thread.known_items());
    let mut state = thread.state();
    state.is_compacted |=
        prompt.compactions.iter().any(|it| it.verdict == CompactionVerdict::Applied);
    !state.is_compacted && is_untouched
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

/// The plan with the model's last answer in it, where there is room: a model that thinks refuses to go
/// on where its last answer begins without its thinking, and of earlier answers that is left out
/// already.
fn keep_last_answer(
    lawful: &EnforcedPlan,
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> EnforcedPlan {
    let Some(last) = view.iter().rev().find(|entry| entry.role() == Role::Assistant) else {
        return lawful.clone();
    };
    let seq = last.seq();
    let keeps = |action: &Action| match action {
        Action::Keep(range) => range.contains(&seq),
        Action::ReplaceText { seq: told, .. } | Action::ReplaceRaw { seq: told, .. } => {
            *told == seq
        }
        _ => false,
    };
    if lawful.plan.ops.iter().any(|op| keeps(&op.action)) {
        return lawful.clone();
    }
    let mut plan = Plan { extras: lawful.plan.extras.clone(), ..Plan::default() };
    let mut is_in = false;
    for op in &lawful.plan.ops {
        let range = op.action.range();
        let is_behind = !matches!(op.action, Action::Insert { .. }) && range.start > seq;
        if is_behind && !is_in {
            plan.keep(seq..seq + 1);
            is_in = true;
        }
        // What is dropped by name is dropped without it, too.
        if !matches!(op.action, Action::Drop(_)) {
            plan.ops.push(op.clone());
        }
    }
    if !is_in {
        plan.keep(seq..seq + 1);
    }
    match invariants::enforce(view, plan, budget_tokens, settings) {
        Ok(mended) if mended.tokens <= budget_tokens => mended,
        _ => lawful.clone(),
    }
}

/// How the compactions of a request ended, in the word of the truth.
pub(super) fn compaction_label(outcomes: &[CompactionOutcome], is_clients: bool) -> &'static str {
    let is_applied = |outcome: &&CompactionOutcome| outcome.verdict == CompactionVerdict::Applied;
    match outcomes.iter().rev().find(is_applied).or(outcomes.last()) {
        Some(outcome) => match outcome.verdict {
            CompactionVerdict::Applied => "applied",
            CompactionVerdict::Rejected { .. } => "rejected",
            CompactionVerdict::NotTried { .. } => "failed",
        },
        None if is_clients => "client",
        None => "none",
    }
}
