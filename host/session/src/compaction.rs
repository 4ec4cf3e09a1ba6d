//! Builds the compaction record of a plan: exact items for ctxhost, a summary and a kept tail for Pi.

use std::collections::HashMap;

use ctxhost_engine_api::{Action, Entry, EntryKind, Plan, PlanItem, Role, Transcript};
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
    /// What to keep, replace and insert.
    pub plan: &'a Plan,
    /// The transcript whose positions the plan names: the live one, or [the one without](crate::Session::live_without) some
    /// compactions.
    pub view: &'a Transcript,
    /// The ids of those compactions.
    pub ignored: &'a [String],
    /// Size of the live transcript, in tokens without margin.
    pub tokens_before: u64,
    /// Size of the projection, in tokens without margin.
    pub tokens_after: u64,
    /// The id of the engine that made the plan.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// The reason: [`Trigger::name`](ctxhost_engine_api::Trigger::name).
    pub trigger: String,
    /// The time in milliseconds since 1970; `None` is now.
    pub timestamp_ms: Option<i64>,
    /// Data of the host to store with it; `null` for none.
    pub extra_details: Value,
}

#[cfg(test)]
impl<'a> NewCompaction<'a> {
    /// A manual compaction for tests.
    pub(crate) fn of_tests(plan: &'a Plan, view: &'a Transcript) -> Self {
        NewCompaction {
            plan,
            view,
            ignored: &[],
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

/// The content of a compaction record, before its id is known.
#[derive(Debug)]
pub(super) struct CompactionDraft {
    summary: String,
    first_kept_id: Option<String>,
    tokens_before: u64,
    details: String,
}

impl CompactionDraft {
    /// Computes the content and verifies that reading it gives the projection of the plan.
    pub(super) fn prepare(
        contents: &SessionContents,
        first_task: Option<usize>,
        new: &NewCompaction<'_>,
    ) -> Result<CompactionDraft, SessionError> {
        let items = stored_items(new.plan, new.view)?;
        let projection = new.plan.project(new.view);
        let kept: Vec<Entry<'_>> = projection.iter().filter_map(PlanItem::entry).collect();
        verify((contents, first_task, new.ignored), &items, &kept)?;
        Ok(CompactionDraft {
            summary: summary_for_pi(contents, new, &projection, kept.len()),
            first_kept_id: tail_start(contents, &kept).map(str::to_owned),
            tokens_before: new.tokens_before,
            details: details_json(new, items)?,
        })
    }

    /// Its content as the seed of an id.
    pub(super) fn id_seed(&self) -> String {
        format!("{}{}", self.summary, self.details)
    }

    /// The body of the record with this id.
    pub(super) fn into_body(self, id: &str) -> RecordBody {
        // A compaction that keeps no tail names itself, which Pi reads as an empty tail.
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

fn stored_items(plan: &Plan, view: &Transcript) -> Result<Vec<StoredItem>, SessionError> {
    let id = |seq| {
        let missing =
            || plan_error(format!("the plan names position {seq} of {} entries", view.len()));
        view.get(seq).map(|entry| entry.id().to_owned()).ok_or_else(missing)
    };
    let mut items = Vec::new();
    for op in &plan.ops {
        items.push(match &op.action {
            // It has no first and last entry to name.
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
                StoredItem::Insert { insert: insert_role(*role)?, text: text.clone() }
            }
            // An entry that no item names is dropped.
            Action::Drop(_) => continue,
            _ => return Err(plan_error("the plan has an operation of a newer engine API")),
        });
    }
    Ok(items)
}

fn insert_role(role: Role) -> Result<InsertRole, SessionError> {
    let invalid = || plan_error(format!("a plan cannot insert a message of role {}", role.name()));
    InsertRole::from_role(role).ok_or_else(invalid)
}

/// Verifies that the items apply to the live transcript of this session and keep what the plan keeps.
fn verify(
    (contents, first_task, ignored): (&SessionContents, Option<usize>, &[String]),
    items: &[StoredItem],
    kept: &[Entry<'_>],
) -> Result<(), SessionError> {
    let live = LiveTranscript::from_branch(contents, first_task, ignored);
    let slots = live.project(contents.records.len(), items).ok_or_else(|| {
        plan_error(
            "the plan is out of order, or its view is not the live transcript of this branch",
        )
    })?;
    // Inserted messages have no entry yet, because the compaction is not in the session.
    let found: Vec<String> = slots.iter().filter_map(|slot| Some(live.entry(slot)?.id)).collect();
    if found.iter().map(String::as_str).eq(kept.iter().map(Entry::id)) {
        return Ok(());
    }
    Err(plan_error("the view of the plan lacks entries of the live transcript of this branch"))
}

/// The summary for Pi: inserted texts and kept summaries, in order.
fn summary_for_pi(
    contents: &SessionContents,
    new: &NewCompaction<'_>,
    projection: &[PlanItem<'_>],
    kept: usize,
) -> String {
    let texts = projection.iter().filter_map(|item| match item {
        PlanItem::Inserted { text, .. } => Some((*text).to_owned()),
        _ if item.entry()?.kind() != EntryKind::CompactionSummary => None,
        PlanItem::Kept(entry) => {
            // Without its frame, which Pi adds again.
            let summary = contents.record(entry.id()).and_then(entry::compaction_summary_text);
            Some(summary.unwrap_or_else(|| entry.text().to_owned()))
        }
        _ => Some(item.text().into_owned()),
    });
    let texts: Vec<String> = texts.collect();
    // Pi shows the summary to the model in any case.
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

/// The id of the first entry of the kept tail.
fn tail_start<'a>(contents: &SessionContents, kept: &[Entry<'a>]) -> Option<&'a str> {
    let path = contents.tree.path();
    let steps: HashMap<usize, usize> =
        path.iter().enumerate().map(|(step, at)| (*at, step)).collect();
    let step = |entry: &Entry<'_>| {
        let at = contents.tree.position(entry.id())?;
        let is_plain = *contents.record_at(at)?.kind() != RecordKind::Compaction;
        is_plain.then(|| steps.get(&at).copied())?
    };
    let has_entry_between = |first: usize, next: usize| {
        let between = path.get(first + 1..next).unwrap_or_default();
        let hides = |at: &usize| {
            contents.skipped.as_ref().is_some_and(|skipped| skipped.hides_entry_before(*at))
        };
        between.iter().chain(path.get(next)).any(hides)
            || between.iter().filter_map(|at| contents.record_at(*at)).any(Record::is_in_context)
    };
    // Pi puts every record from there on into the context. So the tail only contains entries that are
    // adjacent both in the transcript and in the file, without entries that the plan dropped.
    let mut start: Option<(Entry<'a>, usize)> = None;
    for entry in kept.iter().rev() {
        let Some(entry_step) = step(entry) else { break };
        let is_adjacent = start.is_none_or(|(next, next_step)| {
            entry.seq() + 1 == next.seq() && !has_entry_between(entry_step, next_step)
        });
        if !is_adjacent {
            break;
        }
        start = Some((*entry, entry_step));
    }
    start.map(|(entry, _)| entry.id())
}

fn details_json(new: &NewCompaction<'_>, items: Vec<StoredItem>) -> Result<String, SessionError> {
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
            ignored_compactions: new.ignored.to_vec(),
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
