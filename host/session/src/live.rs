//! The live transcript: what the model could see on the current branch.
//!
//! Without a compaction it is the branch. Otherwise the newest compaction decides: by its recorded
//! projection where ctxhost wrote one, else by Pi's rule. A projection names entries of the live
//! transcript before it, so the walk begins at the newest compaction that stands alone:
//!
//! ```text
//!  branch   a b c d e [pi: keep d..] f g [ctxhost: insert, keep f..g] h
//!  live     ────────▶ S d e          f g ─────────────────▶ # f g     h
//! ```
//!
//! What was live right behind a compaction depends on nothing that follows it, so where that is known
//! already the walk begins there.

use std::collections::HashMap;

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::{Flags, Role};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::contents::Contents;
use super::fields::Fields;
use super::items::{self, Item, Speaker};
use super::record::{Record, RecordKind};
use super::{adoption, entry, fields};

/// The live transcript as a log.
pub(super) fn log(contents: &Contents, first_task: Option<usize>, epoch: u64) -> TranscriptLog {
    log_along(contents, first_task, &contents.tree.path(), epoch)
}

/// The live transcript of a path from the root, as a log.
pub(super) fn log_along(
    contents: &Contents,
    first_task: Option<usize>,
    path: &[usize],
    epoch: u64,
) -> TranscriptLog {
    let mut log = TranscriptLog::new(epoch);
    for entry in Live::along(contents, first_task, path).entries() {
        log.append(entry);
    }
    log
}

/// The live transcript before its entries are worked out.
#[derive(Debug)]
pub(super) struct Live<'a> {
    contents: &'a Contents,
    first_task: Option<usize>,
    edits: HashMap<String, Edit>,
    slots: Vec<Slot>,
    /// Whether a compaction on the way fell back to Pi's rule.
    by_rule: bool,
}

/// What is live right behind a compaction.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The compaction.
    pub(super) at: usize,
    pub(super) slots: Vec<Slot>,
}

/// The place of one entry: where it comes from, and what compactions made of it.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) source: Source,
    pub(super) changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The record at this position.
    Record(usize),
    /// The system message that the compaction at this position carries.
    Checkpoint(usize),
    /// The nth message that the compaction at this position inserted: one of its items, from 0.
    Inserted { compaction: usize, item: usize, number: usize, speaker: Speaker, text: String },
}

impl Slot {
    fn of(source: Source) -> Slot {
        Slot { source, changes: Vec::new() }
    }

    fn changed(&self, change: Option<&Change>) -> Slot {
        let mut slot = self.clone();
        slot.changes.extend(change.cloned());
        slot
    }
}

impl Source {
    /// What one of the items of a compaction put in; `None` for an item that puts nothing in.
    pub(super) fn inserted(compaction: usize, items: &[Item], item: usize) -> Option<Source> {
        let Item::Insert { insert: speaker, text } = items.get(item)? else { return None };
        let is_insert = |item: &&Item| matches!(item, Item::Insert { .. });
        let number = items.iter().take(item).filter(is_insert).count();
        let (speaker, text) = (*speaker, text.clone());
        Some(Source::Inserted { compaction, item, number, speaker, text })
    }
}

/// What an item of a compaction made of an entry.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) compaction: usize,
    /// Which of its items, from 0.
    pub(super) item: usize,
    pub(super) told: Told,
}

#[derive(Clone, Debug)]
pub(super) enum Told {
    Text(String),
    Raw(String),
}

/// What the newest context edit makes of a record: nothing, or other content.
#[derive(Debug)]
enum Edit {
    Omit,
    Content(String),
}

impl Change {
    /// What one of the items of a compaction makes of the entries it names; `None` where it keeps them.
    pub(super) fn of(compaction: usize, items: &[Item], item: usize) -> Option<Change> {
        let told = match items.get(item)? {
            Item::Retell { text, .. } => Told::Text(text.clone()),
            Item::Rewrite { raw, .. } => Told::Raw(raw.clone()),
            Item::Keep { .. } | Item::KeepRange { .. } | Item::Insert { .. } => return None,
        };
        Some(Change { compaction, item, told })
    }
}

impl<'a> Live<'a> {
    /// The live transcript of the current branch.
    pub(super) fn of(contents: &'a Contents, first_task: Option<usize>) -> Live<'a> {
        Live::along(contents, first_task, &contents.tree.path())
    }

    /// The live transcript of a path from the root.
    pub(super) fn along(
        contents: &'a Contents,
        first_task: Option<usize>,
        path: &[usize],
    ) -> Live<'a> {
        let edits = edits_on(contents, path);
        let mut live = Live { contents, first_task, edits, slots: Vec::new(), by_rule: false };
        live.walk(path);
        live
    }

    /// What is live right behind a compaction, which is the last record of `path`.
    pub(super) fn standing(contents: &'a Contents, at: usize, path: &[usize]) -> Standing {
        let live = Live::along(contents, None, path);
        Standing { at, slots: live.slots }
    }

    /// Whether it took more than what compactions of ctxhost recorded: records of before, by Pi's rule.
    pub(super) fn is_by_rule(&self) -> bool {
        self.by_rule
    }

    /// The slots that a recorded projection makes of this transcript.
    ///
    /// `None` where it names an entry that is not here, or one twice.
    pub(super) fn project(&self, compaction: usize, items: &[Item]) -> Option<Vec<Slot>> {
        let index: HashMap<String, usize> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| Some((self.id(slot)?, at)))
            .collect();
        let (mut projected, mut next) = (Vec::new(), 0);
        for (number, item) in items.iter().enumerate() {
            let Some((first_id, last_id)) = named(item) else {
                projected.push(Slot::of(Source::inserted(compaction, items, number)?));
                continue;
            };
            let (first, last) = (*index.get(first_id)?, *index.get(last_id)?);
            let kept = self.slots.get(first..=last).filter(|_| first >= next)?;
            let change = Change::of(compaction, items, number);
            projected.extend(kept.iter().map(|slot| slot.changed(change.as_ref())));
            next = last + 1;
        }
        Some(projected)
    }

    /// The entries of this transcript.
    pub(super) fn entries(&self) -> impl Iterator<Item = NewEntry> {
        self.slots.iter().filter_map(|slot| self.entry(slot))
    }

    /// The entry of a slot; `None` for a record that is not in context.
    pub(super) fn entry(&self, slot: &Slot) -> Option<NewEntry> {
        let entry = self.original(slot)?;
        Some(slot.changes.iter().fold(entry, |entry, change| match &change.told {
            Told::Text(text) => entry::retold(entry, text),
            Told::Raw(raw) => entry::rewritten(entry, raw),
        }))
    }

    fn walk(&mut self, path: &[usize]) {
        let mut seen = self.begin_at_standing(path);
        let is_compaction = |at: &usize| self.kind(*at) == Some(&RecordKind::Compaction);
        let compactions: Vec<(usize, Option<Vec<Item>>)> = (seen..path.len())
            .filter(|step| path.get(*step).is_some_and(is_compaction))
            .map(|step| (step, self.record(path, step).and_then(items::of)))
            .collect();
        let base = compactions.iter().rposition(|(_, items)| items.is_none()).unwrap_or(0);
        for (step, items) in compactions.into_iter().skip(base) {
            self.add_records(path.get(seen..step));
            self.compact(path, step, items);
            seen = step + 1;
        }
        self.add_records(path.get(seen..));
    }

    /// Takes over what is known to be live behind a compaction of the path; answers the step after it.
    fn begin_at_standing(&mut self, path: &[usize]) -> usize {
        let Some(standing) = &self.contents.standing else { return 0 };
        let Some(step) = path.iter().rposition(|at| *at == standing.at) else { return 0 };
        self.slots.clone_from(&standing.slots);
        step + 1
    }

    fn compact(&mut self, path: &[usize], step: usize, items: Option<Vec<Item>>) {
        let Some(at) = path.get(step).copied() else { return };
        let projected = items.as_ref().and_then(|items| self.project(at, items));
        if items.is_some() && projected.is_none() {
            let id = self.contents.at(at).map_or("", Record::id);
            tracing::warn!(
                compaction = id,
                "recorded projection names entries that are not there; using Pi's rule"
            );
        }
        match projected {
            Some(slots) => self.slots = slots,
            None => self.compact_by_rule(path, step, at),
        }
    }

    /// Pi's rule: the summary, then what is kept of the records before it.
    fn compact_by_rule(&mut self, path: &[usize], step: usize, at: usize) {
        self.by_rule = true;
        let wire = self.contents.at(at).and_then(Record::read::<WireKept<'_>>).unwrap_or_default();
        let before = path.get(..step).unwrap_or_default();
        let kept_from = self.contents.tree.position(&wire.first_kept_entry_id);
        let kept_from = before.iter().position(|position| Some(*position) == kept_from);
        let has_checkpoint = wire.system_message.is_some();
        self.slots.clear();
        if has_checkpoint {
            self.slots.push(Slot::of(Source::Checkpoint(at)));
        }
        self.slots.push(Slot::of(Source::Record(at)));
        let summary_end = self.slots.len();
        self.add_records(kept_from.and_then(|from| before.get(from..)));
        if has_checkpoint {
            self.drop_system_messages(summary_end);
        }
    }

    /// A checkpoint holds all that earlier system messages said.
    fn drop_system_messages(&mut self, from: usize) {
        let kept = self.slots.split_off(from);
        // What an edit makes of a message plays no part: it may be edited again later.
        let entry_of = |slot: &Slot| match slot.source {
            Source::Record(at) => self.contents.at(at)?.to_entry(),
            Source::Checkpoint(_) | Source::Inserted { .. } => None,
        };
        let is_system = |slot: &Slot| entry_of(slot).is_some_and(|e| e.role == Role::System);
        let kept: Vec<Slot> = kept.into_iter().filter(|slot| !is_system(slot)).collect();
        self.slots.extend(kept);
    }

    /// Adds the records at these positions; compactions add nothing of their own here.
    fn add_records(&mut self, positions: Option<&[usize]>) {
        for at in positions.unwrap_or_default().iter().copied() {
            if self.kind(at) != Some(&RecordKind::Compaction) {
                self.slots.push(Slot::of(Source::Record(at)));
            }
        }
    }

    fn original(&self, slot: &Slot) -> Option<NewEntry> {
        match &slot.source {
            Source::Record(at) => self.record_entry(*at),
            Source::Checkpoint(at) => {
                let record = self.contents.at(*at)?;
                let raw = record.read::<WireKept<'_>>()?.system_message?.get();
                Some(NewEntry { id: checkpoint_id(record), ..entry::of_message(record, raw)? })
            }
            Source::Inserted { compaction, speaker, text, .. } => {
                let record = self.contents.at(*compaction)?;
                Some(entry::inserted(record, self.id(slot)?, speaker.role(), text.clone()))
            }
        }
    }

    fn record_entry(&self, at: usize) -> Option<NewEntry> {
        let record = self.contents.at(at)?;
        let mut entry = match self.edits.get(record.id()) {
            Some(Edit::Omit) => return None,
            Some(Edit::Content(content)) => edited(record, content)?,
            None => record.to_entry()?,
        };
        entry = adoption::adopt(self.contents, record, entry);
        if self.first_task == Some(at) {
            entry.flags = entry.flags.with(Flags::PINNED);
        }
        Some(entry)
    }

    fn id(&self, slot: &Slot) -> Option<String> {
        match &slot.source {
            Source::Record(at) => Some(self.contents.at(*at)?.id().to_owned()),
            Source::Checkpoint(at) => Some(checkpoint_id(self.contents.at(*at)?)),
            Source::Inserted { compaction, number, .. } => {
                Some(items::inserted_id(self.contents.at(*compaction)?.id(), *number))
            }
        }
    }

    fn kind(&self, at: usize) -> Option<&RecordKind> {
        self.contents.at(at).map(Record::kind)
    }

    fn record(&self, path: &[usize], step: usize) -> Option<&'a Record> {
        self.contents.at(*path.get(step)?)
    }
}

/// The first and the last entry that an item names; `None` for one that names none.
fn named(item: &Item) -> Option<(&str, &str)> {
    match item {
        Item::Keep { keep } => Some((keep, keep)),
        Item::KeepRange { keep_range: (first, last) } => Some((first, last)),
        Item::Retell { retell, .. } => Some((retell, retell)),
        Item::Rewrite { rewrite, .. } => Some((rewrite, rewrite)),
        Item::Insert { .. } => None,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireKept<'a> {
    first_kept_entry_id: String,
    #[serde(borrow)]
    system_message: Option<&'a RawValue>,
}

/// The id of the system message that a compaction carries.
fn checkpoint_id(compaction: &Record) -> String {
    format!("{}#system", compaction.id())
}

/// The newest edit of each record that was edited on this path.
fn edits_on(contents: &Contents, path: &[usize]) -> HashMap<String, Edit> {
    let records = path.iter().filter_map(|at| contents.at(*at));
    let edits = records.filter(|record| *record.kind() == RecordKind::ContextEdit);
    edits.filter_map(edit_of).collect()
}

/// The record that a record edits.
pub(super) fn edit_target(record: &Record) -> Option<String> {
    let is_edit = *record.kind() == RecordKind::ContextEdit;
    is_edit.then(|| edit_of(record)).flatten().map(|(target, _)| target)
}

fn edit_of(record: &Record) -> Option<(String, Edit)> {
    let (target, content) = context_edit(record)?;
    Some((target, content.map_or(Edit::Omit, Edit::Content)))
}

/// The record that a record of an edit names, and the JSON of what it says now; none where it is left out.
pub fn context_edit(record: &Record) -> Option<(String, Option<String>)> {
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
    let wire: WireEdit<'_> = record.read()?;
    let content = wire.replacement.map(|replacement| replacement.content.get().to_owned());
    Some((wire.target_id, content))
}

fn edited(record: &Record, content: &str) -> Option<NewEntry> {
    let entry = record.to_entry()?;
    let mut message = Fields::parse(&entry.raw)?;
    if message.get("role").is_none() {
        message = Fields::default();
        message.set("role", fields::json_string("user"));
    }
    message.set("content", content.to_owned());
    Some(entry::rewritten(entry, &message.to_line()))
}
