//! The live transcript: the entries of the current branch that a model can see.
//!
//! Without a compaction it is the branch. Otherwise the newest compaction determines it, by its recorded
//! projection if ctxhost wrote it, else by Pi's rule. A projection names entries of the live transcript before
//! it, so the computation starts at the newest compaction without one:
//!
//! ```text
//!  branch   a b c d e [pi: keep d..] f g [ctxhost: insert, keep f..g] h
//!  live     ────────▶ S d e          f g ─────────────────▶ # f g     h
//! ```
//!
//! The live transcript after a compaction does not depend on later records. If it is known
//! ([`LiveBase`]), the computation starts there.
//!
//! A transcript can be computed without the newest compactions: for a model with a larger window they lose too much.
//! A compaction of such a transcript names the ones that it was made without.

mod loss;

use std::collections::HashMap;

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::{Flags, Role};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::contents::SessionContents;
use super::json_fields::JsonFields;
use super::live_slots::{LiveBase, LiveSlot, NewContent, SlotChange, SlotSource};
use super::projection_items::{self, RecordedProjection, StoredItem};
use super::record::{Record, RecordKind};
use super::{entry, json_fields, lenient, orphan_results, text_results};

/// The live transcript of the current branch as a log.
pub(super) fn build_log(
    contents: &SessionContents,
    first_task: Option<usize>,
    epoch: u64,
) -> TranscriptLog {
    build_path_log(contents, first_task, &contents.tree.path(), &[], epoch)
}

/// The live transcript of a path from the root, as a log; without the `ignored` compactions at its end.
pub(super) fn build_path_log(
    contents: &SessionContents,
    first_task: Option<usize>,
    path: &[usize],
    ignored: &[String],
    epoch: u64,
) -> TranscriptLog {
    let mut log = TranscriptLog::new(epoch);
    for entry in LiveTranscript::from_path(contents, first_task, path, ignored).entries() {
        log.append(entry);
    }
    log
}

/// Computes the live transcript after the newest compaction of the branch; returns its position.
pub(super) fn update_live_base(contents: &mut SessionContents) -> Option<usize> {
    let is_compaction = |at: &usize| {
        contents.record_at(*at).is_some_and(|record| *record.kind() == RecordKind::Compaction)
    };
    let mut path = contents.tree.path();
    let step = path.iter().rposition(is_compaction)?;
    path.truncate(step + 1);
    let at = path.last().copied()?;
    // Without the first task: pinning is decided when entries are built, not in slots.
    let slots = LiveTranscript::from_path(contents, None, &path, &[]).slots;
    contents.live_base = Some(LiveBase { at, slots });
    Some(at)
}

/// The live transcript as slots, before its entries are built.
#[derive(Debug)]
pub(super) struct LiveTranscript<'a> {
    contents: &'a SessionContents,
    first_task: Option<usize>,
    edits: HashMap<String, ContextEdit>,
    slots: Vec<LiveSlot>,
    /// Whether the newest compaction without a valid projection was applied by Pi's rule.
    used_pi_rule: bool,
}

/// The newest context edit of a record.
#[derive(Debug)]
enum ContextEdit {
    Omit,
    Content(String),
}

impl<'a> LiveTranscript<'a> {
    /// The live transcript of the current branch, without the `ignored` compactions at its end.
    pub(super) fn from_branch(
        contents: &'a SessionContents,
        first_task: Option<usize>,
        ignored: &[String],
    ) -> LiveTranscript<'a> {
        LiveTranscript::from_path(contents, first_task, &contents.tree.path(), ignored)
    }

    /// The live transcript of a path from the root, without the `ignored` compactions at its end.
    pub(super) fn from_path(
        contents: &'a SessionContents,
        first_task: Option<usize>,
        path: &[usize],
        ignored: &[String],
    ) -> LiveTranscript<'a> {
        let edits = edits_on(contents, path);
        let mut live =
            LiveTranscript { contents, first_task, edits, slots: Vec::new(), used_pi_rule: false };
        live.walk(path, ignored);
        live
    }

    /// Whether Pi's rule was applied, which reads records before the compaction.
    pub(super) fn used_pi_rule(&self) -> bool {
        self.used_pi_rule
    }

    /// Applies a recorded projection to this transcript.
    ///
    /// `None` if it names a missing entry, or entries twice or out of order.
    pub(super) fn project(&self, compaction: usize, items: &[StoredItem]) -> Option<Vec<LiveSlot>> {
        let (mut projected, mut next) = (Vec::new(), 0);
        for (number, item) in items.iter().enumerate() {
            let Some((first_id, last_id)) = named_range(item) else {
                projected.push(LiveSlot::new(SlotSource::from_insert(compaction, items, number)?));
                continue;
            };
            // Ranges in another order are the work of another program: Pi's rule is safer than a guess.
            let first = self.find_slot(next, first_id)?;
            let last = if first_id == last_id { first } else { self.find_slot(first, last_id)? };
            let kept = self.slots.get(first..=last)?;
            let change = SlotChange::from_item(compaction, items, number);
            projected.extend(kept.iter().map(|slot| slot.with_change(change.as_ref())));
            next = last + 1;
        }
        Some(projected)
    }

    /// The index of the slot with this id, from `begin` on. Items name entries in their order, so all searches of
    /// a projection together pass the slots once.
    fn find_slot(&self, begin: usize, id: &str) -> Option<usize> {
        let record = self.contents.tree.position(id);
        let is_it = |slot: &LiveSlot| match slot.source {
            SlotSource::Record(at) => Some(at) == record,
            _ => self.id(slot).as_deref() == Some(id),
        };
        Some(begin + self.slots.get(begin..)?.iter().position(is_it)?)
    }

    /// The entries of this transcript.
    pub(super) fn entries(&self) -> impl Iterator<Item = NewEntry> {
        self.slots.iter().filter_map(|slot| self.entry(slot))
    }

    /// Builds the entry of a slot; `None` for a record that is not in context.
    pub(super) fn entry(&self, slot: &LiveSlot) -> Option<NewEntry> {
        let entry = self.original(slot)?;
        Some(slot.changes.iter().fold(entry, |entry, change| match &change.content {
            NewContent::Text(text) => entry::replace_text(entry, text),
            NewContent::Raw(raw) => entry::replace_raw(entry, raw),
        }))
    }

    fn walk(&mut self, path: &[usize], ignored: &[String]) {
        let counted_end = self.counted_end(path, ignored);
        let counted = path.get(..counted_end).unwrap_or_default();
        let mut seen = self.start_at_base(counted);
        let is_compaction = |at: &usize| self.kind(*at) == Some(&RecordKind::Compaction);
        let compactions: Vec<(usize, Option<RecordedProjection>)> = (seen..counted_end)
            .filter(|step| counted.get(*step).is_some_and(is_compaction))
            .map(|step| (step, self.record(path, step).and_then(projection_items::read_projection)))
            .collect();
        // Pi's rule starts from records, so nothing before such a compaction matters.
        let base = compactions.iter().rposition(|(_, found)| found.is_none()).unwrap_or(0);
        for (step, projection) in compactions.into_iter().skip(base) {
            self.add_records(path.get(seen..step));
            self.undo_ignored(path, step, projection.as_ref());
            self.compact(path, step, projection);
            seen = step + 1;
        }
        self.add_records(path.get(seen..));
    }

    /// The step after the newest compaction that is not ignored; 0 if there is none. Those before it count: it was made from
    /// what they left.
    fn counted_end(&self, path: &[usize], ignored: &[String]) -> usize {
        if ignored.is_empty() {
            return path.len();
        }
        let is_counted = |at: &usize| {
            self.contents.record_at(*at).is_some_and(|record| {
                *record.kind() == RecordKind::Compaction
                    && !ignored.iter().any(|id| id == record.id())
            })
        };
        path.iter().rposition(is_counted).map_or(0, |step| step + 1)
    }

    /// Starts with the known live base if it is on the path; returns the step after it.
    fn start_at_base(&mut self, path: &[usize]) -> usize {
        // Without a base the walk would read every record of a long session for one new entry.
        let Some(base) = &self.contents.live_base else { return 0 };
        let Some(step) = path.iter().rposition(|at| *at == base.at) else { return 0 };
        self.slots.clone_from(&base.slots);
        step + 1
    }

    fn compact(&mut self, path: &[usize], step: usize, projection: Option<RecordedProjection>) {
        let Some(at) = path.get(step).copied() else { return };
        let projected = projection.as_ref().and_then(|found| self.project(at, &found.items));
        if projection.is_some() && projected.is_none() {
            let id = self.contents.record_at(at).map_or("", Record::id);
            tracing::warn!(
                compaction = id,
                "the recorded projection of a compaction names missing entries; using Pi's rule"
            );
        }
        match projected {
            Some(slots) => self.slots = slots,
            // Pi opens our sessions and reads its own fields only, so both readers agree on this.
            None => self.compact_by_pi_rule(path, step, at),
        }
    }

    /// Starts again without the compactions that the next one was made without. Returns whether there are any.
    fn undo_ignored(
        &mut self,
        path: &[usize],
        step: usize,
        next: Option<&RecordedProjection>,
    ) -> bool {
        let Some(ignored) = next.map(|next| &next.ignored_compactions) else { return false };
        if ignored.is_empty() {
            return false;
        }
        let path = path.get(..step).unwrap_or_default();
        let before = LiveTranscript::from_path(self.contents, self.first_task, path, ignored);
        self.slots = before.slots;
        self.used_pi_rule |= before.used_pi_rule;
        true
    }

    /// Pi's rule: the summary, then the kept tail of the records before it.
    fn compact_by_pi_rule(&mut self, path: &[usize], step: usize, at: usize) {
        self.used_pi_rule = true;
        let wire = self
            .contents
            .record_at(at)
            .and_then(Record::parse_fields::<WirePiCompaction<'_>>)
            .unwrap_or_default();
        let before = path.get(..step).unwrap_or_default();
        let kept_from = self.contents.tree.position(&wire.first_kept_entry_id);
        // An id that is not on the branch keeps nothing, as in Pi.
        let kept_from = before.iter().rposition(|position| Some(*position) == kept_from);
        let has_checkpoint = wire.system_message.is_some();
        self.slots.clear();
        if has_checkpoint {
            self.slots.push(LiveSlot::new(SlotSource::Checkpoint(at)));
        }
        self.slots.push(LiveSlot::new(SlotSource::Record(at)));
        let summary_end = self.slots.len();
        self.add_records(kept_from.and_then(|from| before.get(from..)));
        if has_checkpoint {
            self.drop_system_messages(summary_end);
        }
    }

    /// Removes system messages, which the checkpoint of a compaction replaces.
    fn drop_system_messages(&mut self, from: usize) {
        let kept = self.slots.split_off(from);
        // Decided by the unedited record: a later edit must not bring the message back.
        let entry_of = |slot: &LiveSlot| match slot.source {
            SlotSource::Record(at) => self.contents.record_at(at)?.to_entry(),
            SlotSource::Checkpoint(_) | SlotSource::Inserted { .. } => None,
        };
        let is_system =
            |slot: &LiveSlot| entry_of(slot).is_some_and(|entry| entry.role == Role::System);
        let kept: Vec<LiveSlot> = kept.into_iter().filter(|slot| !is_system(slot)).collect();
        self.slots.extend(kept);
    }

    /// Adds the records at these positions except compactions, which [`compact`](Self::compact) applies.
    fn add_records(&mut self, positions: Option<&[usize]>) {
        for at in positions.unwrap_or_default().iter().copied() {
            if self.kind(at) != Some(&RecordKind::Compaction) {
                self.slots.push(LiveSlot::new(SlotSource::Record(at)));
            }
        }
    }

    fn original(&self, slot: &LiveSlot) -> Option<NewEntry> {
        match &slot.source {
            SlotSource::Record(at) => self.record_entry(*at),
            SlotSource::Checkpoint(at) => {
                let record = self.contents.record_at(*at)?;
                let raw = record.parse_fields::<WirePiCompaction<'_>>()?.system_message?.get();
                Some(NewEntry { id: checkpoint_id(record), ..entry::from_message(record, raw)? })
            }
            SlotSource::Inserted { compaction, role, text, .. } => {
                let record = self.contents.record_at(*compaction)?;
                Some(entry::from_insert(record, self.id(slot)?, role.to_role(), text.clone()))
            }
        }
    }

    fn record_entry(&self, at: usize) -> Option<NewEntry> {
        let record = self.contents.record_at(at)?;
        let mut entry = match self.edits.get(record.id()) {
            Some(ContextEdit::Omit) => return None,
            Some(ContextEdit::Content(content)) => edited_entry(record, content)?,
            None => record.to_entry()?,
        };
        entry = orphan_results::attach_call(self.contents, record, entry);
        entry = text_results::set_kind(self.contents, record, entry);
        // The first task says what all of it is for, and is the first thing that a compaction would drop.
        if self.first_task == Some(at) {
            entry.flags = entry.flags.with(Flags::PINNED);
        }
        Some(entry)
    }

    fn id(&self, slot: &LiveSlot) -> Option<String> {
        match &slot.source {
            SlotSource::Record(at) => Some(self.contents.record_at(*at)?.id().to_owned()),
            SlotSource::Checkpoint(at) => Some(checkpoint_id(self.contents.record_at(*at)?)),
            SlotSource::Inserted { compaction, number, .. } => Some(projection_items::insert_id(
                self.contents.record_at(*compaction)?.id(),
                *number,
            )),
        }
    }

    fn kind(&self, at: usize) -> Option<&RecordKind> {
        self.contents.record_at(at).map(Record::kind)
    }

    fn record(&self, path: &[usize], step: usize) -> Option<&'a Record> {
        self.contents.record_at(*path.get(step)?)
    }
}

/// The first and last entry named by an item; `None` for an insert.
fn named_range(item: &StoredItem) -> Option<(&str, &str)> {
    match item {
        StoredItem::Keep { keep } => Some((keep, keep)),
        StoredItem::KeepRange { keep_range: (first, last) } => Some((first, last)),
        StoredItem::ReplaceText { retell, .. } => Some((retell, retell)),
        StoredItem::ReplaceRaw { rewrite, .. } => Some((rewrite, rewrite)),
        StoredItem::Insert { .. } => None,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePiCompaction<'a> {
    #[serde(deserialize_with = "lenient::or_default")]
    first_kept_entry_id: String,
    #[serde(borrow)]
    system_message: Option<&'a RawValue>,
}

/// The id of the system message carried by a compaction.
fn checkpoint_id(compaction: &Record) -> String {
    format!("{}#system", compaction.id())
}

/// The newest edit of each record edited on this path.
fn edits_on(contents: &SessionContents, path: &[usize]) -> HashMap<String, ContextEdit> {
    let records = path.iter().filter_map(|at| contents.record_at(*at));
    let edits = records.filter(|record| *record.kind() == RecordKind::ContextEdit);
    edits.filter_map(edit_of).collect()
}

/// The target of a context edit.
pub(super) fn edit_target(record: &Record) -> Option<String> {
    let is_edit = *record.kind() == RecordKind::ContextEdit;
    is_edit.then(|| edit_of(record)).flatten().map(|(target, _)| target)
}

fn edit_of(record: &Record) -> Option<(String, ContextEdit)> {
    let (target, content) = parse_context_edit(record)?;
    Some((target, content.map_or(ContextEdit::Omit, ContextEdit::Content)))
}

/// The target of a context edit and the JSON of its new content; `None` as content hides the target.
pub fn parse_context_edit(record: &Record) -> Option<(String, Option<String>)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireEdit<'a> {
        target_id: String,
        #[serde(borrow)]
        replacement: Option<WireReplacement<'a>>,
    }
    #[derive(Deserialize)]
    struct WireReplacement<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let wire: WireEdit<'_> = record.parse_fields()?;
    let content = wire.replacement.map(|replacement| replacement.content.get().to_owned());
    Some((wire.target_id, content))
}

fn edited_entry(record: &Record, content: &str) -> Option<NewEntry> {
    let entry = record.to_entry()?;
    let mut message = JsonFields::parse(&entry.raw)?;
    if message.get("role").is_none() {
        message = JsonFields::default();
        message.set("role", json_fields::json_string("user"));
    }
    message.set("content", content.to_owned());
    Some(entry::replace_raw(entry, &message.to_line()))
}
