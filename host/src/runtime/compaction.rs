//! One compaction: asked for, held against the law, applied only if it made progress.

use std::time::Duration;

use ctxhost_engine_api::{Action, CompactRequest, Compaction, Plan, Role, Trigger};
use serde_json::Value;

use super::conversation::Conversation;
use super::request::{RuntimeError, Shaper};
use crate::engine::{Served, SlotError};
use crate::law::{self, Lawful, progress};
use crate::session::NewCompaction;

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
    /// Time inside engines.
    pub took: Duration,
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

/// Tries one compaction. Whatever goes wrong, the session is as it was.
pub(super) async fn attempt(
    shaper: &Shaper<'_>,
    conversation: &mut Conversation,
    wanted: Wanted,
) -> Result<CompactionOutcome, RuntimeError> {
    let Wanted { trigger, attempt, focus, now_ms } = wanted;
    let view = conversation.view();
    let before_tokens = view.total_tokens();
    let mut outcome = CompactionOutcome {
        trigger,
        engine: shaper.slot.effective().id().into(),
        verdict: Verdict::Applied,
        before_tokens,
        after_tokens: before_tokens,
        folded: Vec::new(),
        summary: String::new(),
        took: Duration::ZERO,
    };
    if let Some(reason) = conversation.breaker.is_open(now_ms) {
        outcome.verdict = Verdict::NotTried { reason: reason.to_string() };
        return Ok(outcome);
    }
    let request = CompactRequest {
        session: conversation.reference().clone(),
        budget: shaper.budget_tokens,
        reserve_tokens: shaper.reserve_tokens,
        current_tokens: before_tokens,
        trigger,
        force: trigger == Trigger::Manual,
        custom_instructions: focus,
        model: shaper.model.clone(),
        attempt,
        now_ms,
        ..CompactRequest::default()
    };
    match shaper.slot.compact(&view, request).await {
        Ok(served) => {
            outcome.engine = served.engine.clone();
            outcome.took = served.took;
            match judge(shaper, conversation, &served, before_tokens) {
                Ok(lawful) => {
                    apply(conversation, &lawful, &served, &mut outcome, now_ms)?;
                    conversation.breaker.record_success(now_ms);
                    return Ok(outcome);
                }
                Err(reason) => outcome.verdict = Verdict::Rejected { reason },
            }
        }
        Err(SlotError::Engine { id, error, .. }) => {
            outcome.engine = id;
            outcome.verdict = Verdict::Rejected { reason: error.message };
        }
        Err(other) => return Err(other.into()),
    }
    conversation.breaker.record_failure(now_ms);
    Ok(outcome)
}

/// Holds the answer against every law; the reason where it does not pass.
fn judge(
    shaper: &Shaper<'_>,
    conversation: &Conversation,
    served: &Served<Compaction>,
    before_tokens: u64,
) -> Result<Lawful, String> {
    let plan = match &served.value {
        Compaction::Plan(plan) => plan.clone(),
        Compaction::Delegate => return Err("the bundled engine delegated to itself".into()),
        Compaction::Nothing { reason } => return Err(format!("nothing to compact: {reason}")),
    };
    let view = conversation.view();
    let lawful = law::enforce(&view, plan, shaper.budget_tokens, shaper.law)
        .map_err(|violation| violation.to_string())?;
    progress::judge(before_tokens, lawful.tokens, shaper.budget_tokens, shaper.law)
        .map_err(|stuck| stuck.to_string())?;
    Ok(lawful)
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
        extra_details: Value::Null,
    })?;
    outcome.after_tokens = lawful.tokens;
    outcome.folded = folded(&view, &lawful.plan);
    outcome.summary = inserted_text(&lawful.plan);
    Ok(())
}

/// The entries of the gaps between what the plan keeps.
fn folded(view: &ctxhost_engine_api::Transcript, plan: &Plan) -> Vec<FoldedEntry> {
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

fn inserted_text(plan: &Plan) -> String {
    let texts = plan.ops.iter().filter_map(|op| match &op.action {
        Action::Insert { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
