//! One compaction: asked for, held against the law, applied only if it made progress.

use std::time::Duration;

use ctxhost_engine_api::{Action, CompactRequest, Compaction, Plan, Role, Transcript, Trigger};
use serde_json::json;

use super::conversation::Conversation;
use super::hook::{self, ComingCompaction, HookDecision};
use super::precompute;
use super::request::{MAX_COMPACTIONS, RuntimeError, Shaper};
use ctxhost_engine::{Served, SlotError};
use ctxhost_law::{self as law, Lawful, progress};
use ctxhost_session::NewCompaction;
use ctxhost_survival::{self as survival, Shares};

/// What became of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was applied: the live transcript is smaller now.
    Applied,
    /// It was not applied: the session is as it was.
    Rejected {
        /// Why.
        reason: String,
    },
    /// It was not tried: the breaker is open or the hour's budget is spent.
    NotTried {
        /// Why.
        reason: String,
    },
}

impl Verdict {
    /// Whether another attempt at the same pressure makes sense.
    pub fn allows_another(&self) -> bool {
        !matches!(self, Verdict::NotTried { .. })
    }
}

/// A compaction that was tried.
#[derive(Clone, Debug)]
pub struct CompactionOutcome {
    /// Why it was wanted.
    pub trigger: Trigger,
    /// Who made it.
    pub engine: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Size of the live transcript before, in tokens without margin.
    pub before_tokens: u64,
    /// Size after; the same as before where it was not applied.
    pub after_tokens: u64,
    /// Ids, roles, sizes and texts of the entries that are no longer there word for word.
    pub folded: Vec<FoldedEntry>,
    /// What stands for them.
    pub summary: String,
    /// What the engine said of it: who wrote the summary, and what did not go as it should.
    pub said: String,
    /// How much of what was said is still said; `None` where there was nothing to hold against it.
    pub survival: Option<Shares>,
    /// Why it was not the configured engine that made it.
    pub fallback: Option<String>,
    /// Whether it had been worked out ahead, so that nobody waited for the engine.
    pub ahead: bool,
    /// Time inside engines.
    pub took: Duration,
}

impl CompactionOutcome {
    /// The outcome before anything has happened.
    fn begun(shaper: &Shaper<'_>, view: &Transcript, trigger: Trigger) -> Self {
        CompactionOutcome {
            trigger,
            engine: shaper.slot.effective().id,
            verdict: Verdict::Applied,
            before_tokens: view.total_tokens(),
            after_tokens: view.total_tokens(),
            folded: Vec::new(),
            summary: String::new(),
            said: String::new(),
            survival: None,
            fallback: None,
            ahead: false,
            took: Duration::ZERO,
        }
    }
}

/// An entry that a compaction folded away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedEntry {
    /// Its id in the session.
    pub id: String,
    /// Who spoke.
    pub role: Role,
    /// Its size.
    pub tokens: u64,
    /// The beginning of its text.
    pub excerpt: String,
}

/// Characters of a folded entry's text that an outcome keeps for display.
const EXCERPT_CHARS: usize = 80;

/// Why and how a compaction is wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Why.
    pub(super) trigger: Trigger,
    /// 1 for the first try at this pressure.
    pub(super) attempt: u32,
    /// What a person asked the summary to look after.
    pub(super) focus: Option<String>,
    /// Now, in milliseconds since 1970.
    pub(super) now_ms: i64,
}

/// Tries compactions that grow bolder, until one is applied or no more makes sense. The last outcome says
/// how it ended.
pub(super) async fn insist(
    shaper: &Shaper<'_>,
    conversation: &mut Conversation,
    wanted: Wanted,
) -> Result<Vec<CompactionOutcome>, RuntimeError> {
    let mut outcomes = Vec::new();
    for attempt in 1..=MAX_COMPACTIONS {
        shaper.ingest(conversation).await?;
        let outcome =
            attempt_one(shaper, conversation, Wanted { attempt, ..wanted.clone() }).await?;
        let ended = !matches!(outcome.verdict, Verdict::Rejected { .. });
        outcomes.push(outcome);
        if ended {
            break;
        }
    }
    Ok(outcomes)
}

/// Tries one compaction. Whatever goes wrong, the session is as it was.
pub(super) async fn attempt_one(
    shaper: &Shaper<'_>,
    conversation: &mut Conversation,
    wanted: Wanted,
) -> Result<CompactionOutcome, RuntimeError> {
    let outcome = run(shaper, conversation, wanted).await?;
    shaper.hooks.iter().for_each(|hook| hook.after(&outcome));
    Ok(outcome)
}

async fn run(
    shaper: &Shaper<'_>,
    conversation: &mut Conversation,
    wanted: Wanted,
) -> Result<CompactionOutcome, RuntimeError> {
    let view = conversation.view();
    let now_ms = wanted.now_ms;
    let mut outcome = CompactionOutcome::begun(shaper, &view, wanted.trigger);
    // A person who asks may try the same sizes again, and so do bolder attempts at one pressure.
    let is_first = wanted.attempt <= 1 && wanted.trigger != Trigger::Manual;
    let short = is_first
        .then(|| conversation.limits.is_short(outcome.before_tokens, shaper.budget_tokens))
        .flatten();
    if let Some(reason) = conversation.limits.is_open(now_ms).or(short) {
        outcome.verdict = Verdict::NotTried { reason: reason.to_string() };
        return Ok(outcome);
    }
    let intent =
        conversation.session().intend_compaction(&view, &outcome.engine, wanted.trigger.name());
    let served = match ask(shaper, conversation, &view, wanted).await {
        Ok(Asked::Served(served)) => served,
        Ok(Asked::Ahead(served)) => {
            outcome.ahead = true;
            served
        }
        Ok(Asked::CalledOff { reason }) => {
            outcome.verdict = Verdict::NotTried { reason };
            return Ok(outcome);
        }
        Err(SlotError::Engine { id, error, .. }) => {
            outcome.engine = id;
            outcome.verdict = Verdict::Rejected { reason: error.message };
            conversation.limits.record_failure(now_ms);
            return Ok(outcome);
        }
        Err(other) => return Err(other.into()),
    };
    outcome.engine = served.engine.clone();
    outcome.fallback = served.fallback.clone();
    outcome.took = served.took;
    let judged = judge(shaper, &view, &served, outcome.before_tokens).and_then(|lawful| {
        let (survival, passes) = weigh(shaper, &view, &lawful);
        outcome.survival = Some(survival);
        passes.map(|()| lawful).map_err(Rejection::from)
    });
    match judged {
        Ok(lawful) => {
            intent.fulfilled();
            apply(conversation, &lawful, &served, &mut outcome, now_ms)?;
            conversation.limits.record_success();
        }
        Err(Rejection { reason, made_room }) => {
            outcome.verdict = Verdict::Rejected { reason };
            let limits = &mut conversation.limits;
            match made_room {
                true => {
                    limits.record_shortfall(outcome.before_tokens, shaper.budget_tokens, shaper.law)
                }
                false => limits.record_failure(now_ms),
            }
        }
    }
    Ok(outcome)
}

/// What came of asking.
enum Asked {
    /// A hook or an engine answered.
    Served(Box<Served<Compaction>>),
    /// The engine answered before it was needed.
    Ahead(Box<Served<Compaction>>),
    /// A hook called it off.
    CalledOff { reason: String },
}

/// Asks the hooks and, where none of them decides, the slot.
async fn ask(
    shaper: &Shaper<'_>,
    conversation: &mut Conversation,
    view: &Transcript,
    wanted: Wanted,
) -> Result<Asked, SlotError> {
    let coming = ComingCompaction {
        session: conversation.reference(),
        view,
        trigger: wanted.trigger,
        attempt: wanted.attempt,
        before_tokens: view.total_tokens(),
        budget_tokens: shaper.budget_tokens,
    };
    for hook in shaper.hooks {
        match hook.before(&coming) {
            HookDecision::Proceed => {}
            HookDecision::Cancel { reason } => {
                return Ok(Asked::CalledOff { reason: format!("a hook called it off: {reason}") });
            }
            HookDecision::Supply { summary } => {
                let plan = Compaction::Plan(hook::plan_of(summary, &coming));
                return Ok(Asked::Served(Box::new(Served::by(hook::HOOK, plan))));
            }
        }
    }
    let before_tokens = coming.before_tokens;
    if wanted.focus.is_none()
        && let Some(served) = precompute::take(conversation, view, shaper)
    {
        return Ok(Asked::Ahead(Box::new(served)));
    }
    let request = CompactRequest {
        session: conversation.reference().clone(),
        budget: conversation.anchors().compaction_budget(shaper.budget_tokens, shaper.law),
        reserve_tokens: shaper.reserve_tokens,
        current_tokens: before_tokens,
        trigger: wanted.trigger,
        force: wanted.trigger == Trigger::Manual,
        custom_instructions: wanted.focus,
        model: shaper.model.clone(),
        attempt: wanted.attempt,
        now_ms: wanted.now_ms,
        ..CompactRequest::default()
    };
    Ok(Asked::Served(Box::new(shaper.slot.compact(view, request).await?)))
}

/// Why an answer is not applied.
pub(super) struct Rejection {
    pub(super) reason: String,
    /// Whether it freed room, although not enough.
    made_room: bool,
}

impl From<String> for Rejection {
    fn from(reason: String) -> Rejection {
        Rejection { reason, made_room: false }
    }
}

/// Holds the answer against every law; the reason where it does not pass.
pub(super) fn judge(
    shaper: &Shaper<'_>,
    view: &Transcript,
    served: &Served<Compaction>,
    before_tokens: u64,
) -> Result<Lawful, Rejection> {
    let plan = match &served.value {
        Compaction::Plan(plan) => plan.clone(),
        Compaction::Delegate => {
            return Err("the bundled engine delegated to itself".to_owned().into());
        }
        Compaction::Nothing { reason } => {
            return Err(format!("nothing to compact: {reason}").into());
        }
    };
    let lawful = law::enforce(view, plan, shaper.budget_tokens, shaper.law)
        .map_err(|violation| violation.to_string())?;
    progress::judge(before_tokens, lawful.tokens, shaper.budget_tokens, shaper.law).map_err(
        |stuck| Rejection { reason: stuck.to_string(), made_room: stuck.made_room(shaper.law) },
    )?;
    Ok(lawful)
}

/// Counts what a lawful plan keeps and holds that against the gate; the reason where it does not pass.
pub(super) fn weigh(
    shaper: &Shaper<'_>,
    view: &Transcript,
    lawful: &Lawful,
) -> (Shares, Result<(), String>) {
    let survival = survival::survey(view, &lawful.items(view));
    let passes = shaper.gate.judge(&survival).map_err(|breach| breach.to_string());
    (survival.shares, passes)
}

fn apply(
    conversation: &mut Conversation,
    lawful: &Lawful,
    served: &Served<Compaction>,
    outcome: &mut CompactionOutcome,
    now_ms: i64,
) -> Result<(), RuntimeError> {
    let view = conversation.view();
    conversation.compact(NewCompaction {
        plan: &lawful.plan,
        view: &view,
        tokens_before: outcome.before_tokens,
        tokens_after: lawful.tokens,
        engine: served.engine.clone(),
        engine_version: served.version.clone(),
        trigger: outcome.trigger.name().into(),
        timestamp_ms: Some(now_ms),
        extra_details: json!({ "survival": outcome.survival }),
    })?;
    outcome.after_tokens = lawful.tokens;
    outcome.folded = folded(&view, &lawful.plan);
    outcome.summary = inserted_text(&lawful.plan);
    if let Compaction::Plan(plan) = &served.value {
        outcome.said = said(plan);
    }
    Ok(())
}

/// The entries of the gaps between what the plan keeps.
fn folded(view: &Transcript, plan: &Plan) -> Vec<FoldedEntry> {
    let mut entries = Vec::new();
    let mut next = 0;
    let kept = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. } => {
            Some(op.action.range())
        }
        _ => None,
    });
    let end = view.len() as u64;
    for range in kept.chain(std::iter::once(end..end)) {
        entries.extend(view.range(next..range.start).map(|entry| FoldedEntry {
            id: entry.id().into(),
            role: entry.role(),
            tokens: entry.tokens(),
            excerpt: entry.text().chars().take(EXCERPT_CHARS).collect(),
        }));
        next = range.end;
    }
    entries
}

/// The notes of what was put in, then those of the whole plan.
fn said(plan: &Plan) -> String {
    let inserted = plan.ops.iter().filter(|op| matches!(op.action, Action::Insert { .. }));
    let notes = inserted.filter_map(|op| op.note.as_ref()).chain(&plan.extras.notes);
    notes.map(|note| note.detail.as_str()).collect::<Vec<_>>().join("; ")
}

fn inserted_text(plan: &Plan) -> String {
    let texts = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Insert { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
