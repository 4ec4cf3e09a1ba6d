//! A conversation that was heard becomes the request that its upstream is sent.

use axum::body::Bytes;
use ctxhost_engine_api::{Action, Entry, Flags, Item, Kind, Plan, Role, Transcript};

use super::Truth;
use super::desk::Desk;
use super::hearing::Heard;
use super::thinking::{Thinking, Told, compacted};
use crate::thread::{Outline, Thread};
use ctxhost_context::{CompactionOutcome, LiveSession, Prompt, Target, Verdict};
use ctxhost_dialects::inbound::{Body, EntryLocation, InboundDialect, Written, render};
use ctxhost_law::{self as law, LawSettings, Lawful};
use ctxhost_media::Images;
use ctxhost_runtime::TurnError;

/// A request as it goes out.
#[derive(Debug)]
pub(super) struct Sent {
    /// Its body, asking for the answer that its client asks for.
    pub(super) body: Bytes,
    /// Its body asking for a shorter one, where that goes out.
    pub(super) lowered: Option<Bytes>,
    /// The truth about it.
    pub(super) truth: Truth,
    /// What it has of the conversation, as entries count.
    pub(super) tokens: u64,
}

/// A request as it came.
#[derive(Clone, Copy)]
pub(super) struct Came<'a> {
    pub(super) speech: &'static dyn InboundDialect,
    pub(super) bytes: &'a Bytes,
    pub(super) json: &'a str,
    pub(super) body: &'a Body<'a>,
}

impl Desk {
    /// Has a prompt prepared and writes it as the body of a request.
    pub(super) async fn shape(
        &self,
        heard: &mut Heard,
        came: Came<'_>,
        target: &Target,
    ) -> Result<Sent, TurnError> {
        let prompt = heard.guard.prepare(target).await?;
        let is_as_it_came = note(&heard.thread, &prompt);
        let (view, lawful) = (&prompt.view, &prompt.lawful);
        let truth = Truth {
            engine: prompt.engine.clone(),
            tokens: Some(lawful.tokens),
            before_tokens: Some(heard.thread.state().outline.said_tokens()),
            compaction: compaction(&prompt.compactions, heard.client_compacts),
            session: heard.session.clone(),
            max_tokens: None,
        };
        if is_as_it_came {
            let body = came.bytes.clone();
            return Ok(Sent { body, lowered: None, truth, tokens: lawful.tokens });
        }
        let session = heard.guard.context().session();
        let surroundings = self.surroundings(&heard.thread, session, came.speech);
        // Writing the body takes long, and new conversations are held against this one meanwhile.
        let outline = heard.thread.outline();
        let lawful = with_last_answer(lawful, view, prompt.budget_tokens, &self.config.law);
        let body = written(came, &outline, &lawful, view, &surroundings);
        let truth = Truth { tokens: Some(lawful.tokens), ..truth };
        Ok(Sent { body: body.into(), lowered: None, truth, tokens: lawful.tokens })
    }

    /// What a body is written with.
    pub(super) fn surroundings(
        &self,
        thread: &Thread,
        session: &LiveSession,
        speech: &dyn InboundDialect,
    ) -> Surroundings {
        let compacted = match speech.binds_thinking() {
            true => compacted(session.session(), &thread.outline()),
            false => None,
        };
        let refused = self.refused_thinking(&session.reference().id);
        Surroundings { images: session.images().clone(), compacted, refused }
    }
}

/// What a body is written with, beside its words.
#[derive(Debug)]
pub(super) struct Surroundings {
    images: Images,
    /// The unit behind which the conversation was compacted last.
    compacted: Option<usize>,
    /// How many units there were when their thinking was refused.
    refused: usize,
}

/// The body that a lawful plan makes of the one that came.
pub(super) fn written(
    came: Came<'_>,
    outline: &Outline,
    lawful: &Lawful,
    view: &Transcript,
    surroundings: &Surroundings,
) -> Vec<u8> {
    let Surroundings { images, compacted, refused } = surroundings;
    let items = lawful.items(view);
    let thinking = match came.speech.binds_thinking() {
        true => {
            let told = Told { outline, view, compacted: *compacted, refused: *refused };
            Thinking::of(told, &items)
        }
        false => Thinking::default(),
    };
    let items: Vec<Item<'_>> = items.into_iter().map(|item| as_written(item, outline)).collect();
    let body = rendered(came, outline, &items, images, &thinking);
    if thinking.is_off { came.speech.asking_no_thinking(body) } else { body }
}

/// The body with these items in the place of those that came.
pub(super) fn rendered(
    came: Came<'_>,
    outline: &Outline,
    items: &[Item<'_>],
    images: &Images,
    thinking: &Thinking,
) -> Vec<u8> {
    let Came { json, body, .. } = came;
    let without_thinking = &thinking.without;
    let written = Written { json, body, units: outline.units(), without_thinking };
    let place = |entry: &Entry<'_>| -> Option<EntryLocation> { outline.place(entry.id()) };
    let message = |raw: &str| serde_json::from_str(&images.bring_back(raw)).ok();
    render(came.speech, written, items, &place, &message)
}

/// What a compaction made another entry of is not what the client wrote. What the client has replaced itself is.
pub(super) fn as_written<'a>(item: Item<'a>, outline: &Outline) -> Item<'a> {
    match item {
        Item::Kept(entry) if outline.mirrors(entry.id(), entry.text()) => Item::Kept(entry),
        Item::Kept(entry) if entry.has(Flags::REPLACED) => match entry.kind() {
            Kind::Message => Item::Rewritten { entry, raw: entry.raw() },
            _ => Item::Retold { entry, text: entry.text() },
        },
        other => other,
    }
}

/// Whether the client's own bytes say what the plan says.
///
/// What the law would have settled in them (an order, a result that is missing or one too many) is the
/// client's own doing, and its provider has the last word on it.
pub(super) fn is_untouched(lawful: &Lawful, view: &Transcript, outline: &Outline) -> bool {
    has_all(view, outline) && keeps_all(&lawful.plan, view.len() as u64)
}

/// Whether what is live is what the client said: nothing is folded. A result that some agent has made up
/// is no entry.
fn has_all(view: &Transcript, outline: &Outline) -> bool {
    let is_said = |entry: Entry<'_>| {
        let is_as_written =
            !entry.has(Flags::REPLACED) || outline.mirrors(entry.id(), entry.text());
        outline.place(entry.id()).is_some() && is_as_written
    };
    view.len() == outline.entry_count() || view.iter().all(is_said)
}

/// Notes of a conversation how its request was shaped; whether that goes out as it came.
fn note(thread: &Thread, prompt: &Prompt) -> bool {
    let is_untouched = is_untouched(&prompt.lawful, &prompt.view, &thread.outline());
    let mut state = thread.state();
    state.is_compacted |= prompt.compactions.iter().any(|it| it.verdict == Verdict::Applied);
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
fn with_last_answer(
    lawful: &Lawful,
    view: &Transcript,
    budget_tokens: u64,
    settings: &LawSettings,
) -> Lawful {
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
    match law::enforce(view, plan, budget_tokens, settings) {
        Ok(mended) if mended.tokens <= budget_tokens => mended,
        _ => lawful.clone(),
    }
}

/// How the compactions of a request ended, in the word of the truth.
pub(super) fn compaction(outcomes: &[CompactionOutcome], is_clients: bool) -> &'static str {
    let is_applied = |outcome: &&CompactionOutcome| outcome.verdict == Verdict::Applied;
    match outcomes.iter().rev().find(is_applied).or(outcomes.last()) {
        Some(outcome) => match outcome.verdict {
            Verdict::Applied => "applied",
            Verdict::Rejected { .. } => "rejected",
            Verdict::NotTried { .. } => "failed",
        },
        None if is_clients => "client",
        None => "none",
    }
}
