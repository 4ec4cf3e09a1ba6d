//! Layer 3, compaction: replaces older history by a summary; the session keeps every entry.
//!
//! It loses detail and may cost model requests, so it runs only when hiding is not enough.
//!
//! ```text
//!  before   task  ──── history ────  newest request  ── prefix ──  │ tail
//!  after    task  [summary]          newest request  [summary]     │ tail
//! ```

mod appendix;
mod chunks;
mod cut;
mod fallbacks;
mod inputs;
mod model_request;
mod prompt;
mod quality;
mod summary;
mod summary_task;
mod workspace;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{
    Action, CompactRequest, Compaction, EngineError, ErrorKind, Host, Plan, PlanNote, Result, Role,
    Transcript,
};
use ctxhost_engine_kit::caps::keep_with_cuts;
use ctxhost_engine_kit::files::FileLedger;
use ctxhost_engine_kit::history_fold::{leave_out, plan_tokens};
use ctxhost_engine_kit::shortening::shorten_or_nothing;
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};
use serde_json::{Value, json};

use crate::decisions::DecisionStore;
use crate::settings::{Settings, share_of};
use crate::tool_result_guard;
use cut::{CompactionCut, Segment};
use inputs::LegacyCompaction;
use summary::CheckedSummary;
use summary_task::SummaryTask;

/// Layer name in plan notes.
pub(crate) const LAYER: &str = "compaction";

/// Chooses the cut, has the summaries written and builds the plan.
pub(crate) async fn compact(
    host: &Host,
    settings: &Settings,
    decisions: &DecisionStore,
    transcript: &Transcript,
    request: &CompactRequest,
) -> Result<Compaction> {
    let inputs = LegacyCompaction { host, settings, decisions, transcript, request };
    let Some(cut) = cut::choose_cut(&inputs) else {
        let reason = "no history lies before the cut";
        return Ok(shorten_or_nothing(transcript, request, LAYER, reason));
    };
    let mut summaries = Vec::new();
    for task in &cut.tasks {
        summaries.push(summary::write_summary(&inputs, task).await?);
    }
    // Before the plan: its notices name the handles.
    store_originals(&inputs, &cut).await;
    let plan = plan_of(&inputs, &cut, &summaries);
    let (before, after) = (transcript.total_tokens(), plan.estimated_tokens);
    if after >= before {
        let reason = "the summary would be larger than the history";
        return Ok(shorten_or_nothing(transcript, request, LAYER, reason));
    }
    // A transcript that was below the limit before may stay there: the user asked for the compaction.
    let limit = share_of(request.budget, settings.compaction.limit_share);
    if before > limit && after > limit {
        return Err(cannot_fit(after, limit));
    }
    Ok(Compaction::Plan(plan))
}

/// The writers of the summaries of a plan, in order.
pub(crate) fn summary_writers(plan: &Plan) -> impl Iterator<Item = &str> {
    // The note of an inserted summary ends with its writer (`HistoryFold::describe`).
    let inserted = plan.ops.iter().filter(|op| matches!(op.action, Action::Insert { .. }));
    inserted.filter_map(|op| Some(op.note.as_ref()?.detail.rsplit_once(", ")?.1))
}

fn cannot_fit(after_tokens: u64, limit_tokens: u64) -> EngineError {
    let message = format!(
        "what must stay takes {} tokens and a compaction must end at {}; choose a larger model, or shorten the newest message",
        group_thousands(after_tokens),
        group_thousands(limit_tokens)
    );
    EngineError::new(ErrorKind::CannotFit, message)
}

fn plan_of(
    inputs: &LegacyCompaction<'_>,
    cut: &CompactionCut,
    summaries: &[CheckedSummary],
) -> Plan {
    let mut plan = Plan::default();
    for segment in &cut.segments {
        match segment {
            Segment::Keep(range) => keep(inputs, cut, range.clone(), &mut plan),
            Segment::Summarise { task, range } => {
                let summarised = cut.tasks.get(*task).zip(summaries.get(*task));
                if let Some((task, summary)) = summarised {
                    insert_summary(task, summary, range.clone(), &mut plan);
                }
            }
        }
    }
    plan.estimated_tokens = plan_tokens(&plan, inputs.transcript);
    plan.extras.details = details(inputs, cut, summaries);
    plan.extras.notes = summaries
        .iter()
        .flat_map(|summary| &summary.notes)
        .map(|note| PlanNote::new(LAYER, note))
        .collect();
    plan
}

/// Inserts the summary in the largest gap of its history and drops the other gaps.
fn insert_summary(
    task: &SummaryTask,
    summary: &CheckedSummary,
    range: std::ops::Range<u64>,
    plan: &mut Plan,
) {
    let (history, writer) = (&task.history, &summary.writer);
    if !history.is_anchor(&range) {
        leave_out(plan, range, LAYER);
        return;
    }
    let text = wrap_summary(&summary.text, &Provenance { entries: history.entries(), writer });
    let detail = history.describe(&text, writer);
    plan.insert(Role::User, text, range).note(LAYER, detail);
}

/// Stores the originals of results that the compaction cuts permanently.
async fn store_originals(inputs: &LegacyCompaction<'_>, cut: &CompactionCut) {
    let guard = &inputs.settings.tool_results;
    let cut_for_good = cut
        .kept_entries(inputs.transcript)
        .filter(|entry| cut.caps.limit_for(inputs, entry).is_some());
    let large = cut_for_good.filter(|entry| tool_result_guard::needs_stored_original(entry, guard));
    inputs.decisions.store_originals(inputs.host, &inputs.request.session, large).await;
}

/// Keeps a range with its results and arguments cut to their caps.
fn keep(
    inputs: &LegacyCompaction<'_>,
    cut: &CompactionCut,
    range: std::ops::Range<u64>,
    plan: &mut Plan,
) {
    keep_with_cuts(plan, inputs.transcript, range, |entry| {
        if let Some(message) = cut.caps.cut_message(entry) {
            return Some(message);
        }
        let cap_chars = cut.caps.limit_for(inputs, entry)?;
        let handle = inputs.decisions.blob_handle(&inputs.request.session, entry.id());
        let guard = &inputs.settings.tool_results;
        let replacement = tool_result_guard::cut_entry(entry, cap_chars, guard, handle.as_deref())?;
        (replacement.tokens() < entry.tokens()).then_some(replacement)
    });
}

/// Details stored with the compaction and read back by the next one.
fn details(
    inputs: &LegacyCompaction<'_>,
    cut: &CompactionCut,
    summaries: &[CheckedSummary],
) -> Value {
    let mut ledger = FileLedger::default();
    for task in &cut.tasks {
        ledger.add_history(inputs.transcript, task.history.gaps());
    }
    let mut identifiers: Vec<&String> = Vec::new();
    // The last summary is the newest.
    for identifier in summaries.iter().rev().flat_map(|summary| &summary.identifiers) {
        if !identifiers.contains(&identifier) {
            identifiers.push(identifier);
        }
    }
    json!({
        "readFiles": ledger.read(),
        "modifiedFiles": ledger.modified(),
        "identifiers": identifiers,
    })
}
