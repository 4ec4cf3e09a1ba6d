//! A plan becomes a compaction record that Pi understands and ctxhost follows to the letter.

use std::collections::HashMap;

use ctxhost_engine_api::{Action, Entry, EntryKind, Plan, PlanItem as Projected, Role, Transcript};
use serde_json::Value;

use super::body::RecordBody;
use super::contents::SessionContents;
use super::entry;
use super::error::SessionError;
use super::json_fields::json_string;
use super::live_transcript::LiveTranscript;
use super::projection_items::{
    CompactionDetails, DETAILS_VERSION, InsertRole, RecordedProjection, StoredItem,
};
use super::record::{Record, RecordKind};

/// A compaction that is about to be recorded.
#[derive(Clone, Debug)]
pub struct NewCompaction<'a> {
    /// What is kept, replaced and put in.
    pub plan: &'a Plan,
    /// The live transcript whose positions the plan names: all of it, as it is now.
    pub view: &'a Transcript,
    /// What the live transcript costs, in tokens without margin.
    pub tokens_before: u64,
    /// What the projection costs, in tokens without margin.
    pub tokens_after: u64,
    /// The id of the engine that made the plan.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Why the compaction was wanted: [`Trigger::name`](ctxhost_engine_api::Trigger::name).
    pub trigger: String,
    /// When, in milliseconds since 1970; now where it is `None`.
    pub timestamp_ms: Option<i64>,
    /// What the host wants to keep beside it; `null` for nothing.
    pub extra_details: Value,
}

#[cfg(test)]
impl<'a> NewCompaction<'a> {
    /// One by hand, as tests of sessions need it.
    pub(crate) fn of_tests(plan: &'a Plan, view: &'a Transcript) -> Self {
        NewCompaction {
            plan,
            view,
            tokens_before: view.total_tokens(),
            tokens_after: 7,
            engine: "window".to_owned(),
            engine_version: "0.1.0".to_owned(),
            trigger: "manual".to_owned(),
            timestamp_ms: Some(9_000),
            extra_details: Value::Null,
        }
    }
}

/// A compaction worked out, without the id that it may name itself.
#[derive(Debug)]
pub(super) struct CompactionDraft {
    summary: String,
    first_kept_id: Option<String>,
    tokens_before: u64,
    details: String,
}

impl CompactionDraft {
    /// Works out what to record, and proves that a reader will find the same projection.
    pub(super) fn prepare(
        contents: &SessionContents,
        first_task: Option<usize>,
        new: &NewCompaction<'_>,
    ) -> Result<CompactionDraft, SessionError> {
        let items = items_of(new.plan, new.view)?;
        let projection = new.plan.project(new.view);
        let kept: Vec<Entry<'_>> = projection.iter().filter_map(Projected::entry).collect();
        prove(contents, first_task, &items, &kept)?;
        Ok(CompactionDraft {
            summary: summary_of(contents, new, &projection, kept.len()),
            first_kept_id: tail_start(contents, &kept).map(str::to_owned),
            tokens_before: new.tokens_before,
            details: details_of(new, items)?,
        })
    }

    /// All it says, as the seed of an id.
    pub(super) fn id_seed(&self) -> String {
        format!("{}{}", self.summary, self.details)
    }

    /// The body of the record. A compaction that keeps no tail names itself.
    pub(super) fn into_body(self, id: &str) -> RecordBody {
        RecordBody::new(RecordKind::Compaction)
            .with_field("summary", json_string(&self.summary))
            .with_field(
                "firstKeptEntryId",
                json_string(self.first_kept_id.as_deref().unwrap_or(id)),
            )
            .with_field("tokensBefore", self.tokens_before.to_string())
            .with_field("details", self.details)
    }
}

fn items_of(plan: &Plan, view: &Transcript) -> Result<Vec<StoredItem>, SessionError> {
    let id = |seq| {
        let missing = || plan_error(format!("the plan names position {seq} of {}", view.len()));
        view.get(seq).map(|entry| entry.id().to_owned()).ok_or_else(missing)
    };
    let mut items = Vec::new();
    for op in &plan.ops {
        items.push(match &op.action {
            Action::Keep(range) if range.is_empty() => continue,
            Action::Keep(range) => match (id(range.start)?, id(range.end - 1)?) {
                (first, last) if first == last => StoredItem::Keep { keep: first },
                keep_range => StoredItem::KeepRange { keep_range },
            },
            Action::ReplaceText { seq, text } => {
                StoredItem::ReplaceText { retell: id(*seq)?, text: text.clone() }
            }
            Action::ReplaceRaw { seq, raw } => {
                StoredItem::ReplaceRaw { rewrite: id(*seq)?, raw: raw.clone() }
            }
            Action::Insert { role, text, .. } => {
                StoredItem::Insert { insert: speaker(*role)?, text: text.clone() }
            }
            Action::Drop(_) => continue,
            _ => return Err(plan_error("the plan has an operation of a newer engine")),
        });
    }
    Ok(items)
}

fn speaker(role: Role) -> Result<InsertRole, SessionError> {
    let refused = || plan_error(format!("a plan cannot insert a message of role {}", role.name()));
    InsertRole::from_role(role).ok_or_else(refused)
}

/// Proves that the items name the live transcript of this session and keep what the plan keeps.
fn prove(
    contents: &SessionContents,
    first_task: Option<usize>,
    items: &[StoredItem],
    kept: &[Entry<'_>],
) -> Result<(), SessionError> {
    let live = LiveTranscript::from_branch(contents, first_task);
    let slots = live.project(contents.records.len(), items).ok_or_else(|| {
        plan_error("the plan is out of order, or its transcript is not the live one of this branch")
    })?;
    // The messages that the plan inserts have no entry before the compaction has a place.
    let found: Vec<String> = slots.iter().filter_map(|slot| Some(live.entry(slot)?.id)).collect();
    if found.iter().map(String::as_str).eq(kept.iter().map(Entry::id)) {
        return Ok(());
    }
    Err(plan_error("the transcript of the plan lacks entries of the live one of this branch"))
}

/// The summary for Pi: all that stands for something older, in order.
fn summary_of(
    contents: &SessionContents,
    new: &NewCompaction<'_>,
    projection: &[Projected<'_>],
    kept: usize,
) -> String {
    let texts = projection.iter().filter_map(|item| match item {
        Projected::Inserted { text, .. } => Some((*text).to_owned()),
        _ if item.entry()?.kind() != EntryKind::CompactionSummary => None,
        Projected::Kept(entry) => {
            let bare = contents.record(entry.id()).and_then(entry::compaction_summary_text);
            Some(bare.unwrap_or_else(|| entry.text().to_owned()))
        }
        _ => Some(item.text().into_owned()),
    });
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        return format!(
            "The context engine {} {} compacted this conversation without a summary: {kept} of {} \
             entries stay in context, some perhaps shortened; the session file keeps all of them.",
            new.engine,
            new.engine_version,
            new.view.len(),
        );
    }
    texts.join("\n\n")
}

/// The id of the first entry of the kept tail: neighbours in the transcript and in the file, so
/// that Pi, which reads on from there, finds nothing that the plan had left out long before.
fn tail_start<'a>(contents: &SessionContents, kept: &[Entry<'a>]) -> Option<&'a str> {
    let path = contents.tree.path();
    let steps: HashMap<usize, usize> =
        path.iter().enumerate().map(|(step, at)| (*at, step)).collect();
    let step = |entry: &Entry<'_>| {
        let at = contents.tree.position(entry.id())?;
        let is_plain = *contents.record_at(at)?.kind() != RecordKind::Compaction;
        is_plain.then(|| steps.get(&at).copied())?
    };
    let is_between = |first: usize, next: usize| {
        let between = path.get(first + 1..next).unwrap_or_default();
        let hides = |at: &usize| {
            contents.skipped.as_ref().is_some_and(|older| older.hides_entry_before(*at))
        };
        between.iter().chain(path.get(next)).any(hides)
            || between.iter().filter_map(|at| contents.record_at(*at)).any(is_in_context)
    };
    let mut start: Option<(Entry<'a>, usize)> = None;
    for entry in kept.iter().rev() {
        let Some(here) = step(entry) else { break };
        let joins = start.is_none_or(|(next, next_step)| {
            entry.seq() + 1 == next.seq() && !is_between(here, next_step)
        });
        if !joins {
            break;
        }
        start = Some((*entry, here));
    }
    start.map(|(entry, _)| entry.id())
}

/// Whether Pi would find an entry there.
pub(super) fn is_in_context(record: &Record) -> bool {
    *record.kind() != RecordKind::Compaction && record.to_entry().is_some()
}

fn details_of(new: &NewCompaction<'_>, items: Vec<StoredItem>) -> Result<String, SessionError> {
    let engine_details = &new.plan.extras.details;
    let files = |name| engine_details.get(name).filter(|files| files.is_array()).cloned();
    let details = CompactionDetails {
        ctxhost: RecordedProjection {
            version: DETAILS_VERSION,
            engine: new.engine.clone(),
            engine_version: new.engine_version.clone(),
            trigger: new.trigger.clone(),
            tokens_after: new.tokens_after,
            items,
            engine_details: engine_details.clone(),
            host_details: new.extra_details.clone(),
        },
        read_files: files("readFiles").unwrap_or_default(),
        modified_files: files("modifiedFiles").unwrap_or_default(),
    };
    serde_json::to_string(&details).map_err(|error| plan_error(error.to_string()))
}

fn plan_error(reason: impl Into<String>) -> SessionError {
    SessionError::Plan { reason: reason.into() }
}
