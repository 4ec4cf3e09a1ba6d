//! The records that the next turn needs, and their form in the checkpoint.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::file::{CheckpointRecord, SavedSlot, SavedSource};
use super::skipped::LinePosition;
use crate::contents::SessionContents;
use crate::live_slots::{LiveBase, LiveSlot, SlotSource};
use crate::live_transcript::edit_target;
use crate::orphan_results;
use crate::record::Record;

/// Positions of the needed records in file order, and the branch up to the compaction.
#[derive(Debug)]
pub(super) struct WorkingSet {
    positions: BTreeSet<usize>,
    path: Vec<usize>,
}

impl WorkingSet {
    /// Computes what the next turn after this compaction needs.
    pub(super) fn compute(contents: &SessionContents, base: &LiveBase) -> WorkingSet {
        let mut path: Vec<usize> = contents.tree.path_backwards_from(base.at).collect();
        path.reverse();
        let mut needed = WorkingSet { positions: BTreeSet::from([base.at]), path };
        let visible = visible_slots(contents, base);
        needed.positions.extend(visible.iter().flat_map(|slot| slot_records(slot)));
        needed.add_context_of_results(contents, &visible);
        needed.add_first_task_and_model(contents);
        // After the records that an edit can have as its target.
        needed.add_edits(contents);
        needed.add_host_state(contents, base.at);
        needed
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        self.positions.iter().copied()
    }

    pub(super) fn contains(&self, position: usize) -> bool {
        self.positions.contains(&position)
    }

    fn add_context_of_results(&mut self, contents: &SessionContents, visible: &[&LiveSlot]) {
        for slot in visible {
            if let SlotSource::Record(at) = slot.source
                && let Some(record) = contents.record_at(at)
            {
                let found =
                    orphan_results::context_records(contents, record, contents.parent_of(record));
                self.positions.extend(found.unwrap_or_default());
            }
        }
    }

    fn add_first_task_and_model(&mut self, contents: &SessionContents) {
        // Without the first task in memory, the next user message would be taken for it.
        let first_task = contents.first_task.filter(|task| self.path.contains(task));
        let names_model =
            |at: &usize| contents.record_at(*at).is_some_and(|record| record.model().is_some());
        let model = self.path.iter().rev().copied().find(names_model);
        self.positions.extend(first_task.into_iter().chain(model));
    }

    /// The newest edit of each needed record.
    fn add_edits(&mut self, contents: &SessionContents) {
        let edits =
            self.path.iter().filter_map(|at| Some((edit_target(contents.record_at(*at)?)?, *at)));
        // The path is in file order, so a later edit of the same target replaces an earlier one.
        let newest: BTreeMap<String, usize> = edits.collect();
        let is_needed = |target: &str| {
            contents.tree.position(target).is_some_and(|at| self.positions.contains(&at))
        };
        let needed = newest.into_iter().filter(|(target, _)| is_needed(target));
        let needed: Vec<usize> = needed.map(|(_, edit)| edit).collect();
        self.positions.extend(needed);
    }

    /// Records with state of the host, on any branch.
    fn add_host_state(&mut self, contents: &SessionContents, last: usize) {
        let records = contents.records.iter().take(last).enumerate();
        let own = records.filter(|(_, record)| record.is_host_state()).map(|(at, _)| at);
        self.positions.extend(own);
    }

    /// The records with their positions.
    pub(super) fn checkpoint_records(
        &self,
        contents: &SessionContents,
        positions: &[LinePosition],
    ) -> Vec<CheckpointRecord> {
        let mut gaps = self.gaps(contents);
        let held = self.positions.iter().zip(positions).map(|(at, position)| {
            let (is_cut, hides) = gaps.remove(at).unwrap_or_default();
            // Parents precede their children in the file, so the path is sorted.
            let on_branch = self.path.binary_search(at).is_ok();
            CheckpointRecord { place: *position, on_branch, is_cut, hides }
        });
        held.collect()
    }

    /// For each held record of the branch, whether any record, and whether an entry, is skipped before it.
    fn gaps(&self, contents: &SessionContents) -> BTreeMap<usize, (bool, bool)> {
        let mut gaps = BTreeMap::new();
        let (mut is_cut, mut hides) = (false, false);
        for at in &self.path {
            if let Some(skipped) = &contents.skipped {
                is_cut |= skipped.has_gap_before(*at);
                hides |= skipped.hides_entry_before(*at);
            }
            if self.positions.contains(at) {
                gaps.insert(*at, (is_cut, hides));
                (is_cut, hides) = (false, false);
            } else {
                is_cut = true;
                hides = hides || contents.record_at(*at).is_some_and(Record::is_in_context);
            }
        }
        gaps
    }

    /// The live entries, by the numbers of the held records.
    pub(super) fn saved_slots(
        &self,
        contents: &SessionContents,
        base: &LiveBase,
    ) -> Vec<SavedSlot> {
        let numbers: BTreeMap<usize, usize> =
            self.positions.iter().enumerate().map(|(number, at)| (*at, number)).collect();
        // `compute` made every record of a visible slot a needed one, so there always is a number.
        let number = |at: &usize| numbers.get(at).copied().unwrap_or_default();
        let saved = visible_slots(contents, base).into_iter().map(|slot| SavedSlot {
            source: match &slot.source {
                SlotSource::Record(at) => SavedSource::Record(number(at)),
                SlotSource::Checkpoint(at) => SavedSource::Checkpoint(number(at)),
                SlotSource::Inserted { compaction, item, .. } => {
                    SavedSource::Inserted(number(compaction), *item)
                }
            },
            changes: slot
                .changes
                .iter()
                .map(|change| (number(&change.compaction), change.item))
                .collect(),
        });
        saved.collect()
    }
}

/// The slots except records that can never be in context.
fn visible_slots<'a>(contents: &SessionContents, base: &'a LiveBase) -> Vec<&'a LiveSlot> {
    let is_visible = |slot: &&LiveSlot| match slot.source {
        SlotSource::Record(at) => {
            contents.record_at(at).is_some_and(|record| record.to_entry().is_some())
        }
        SlotSource::Checkpoint(_) | SlotSource::Inserted { .. } => true,
    };
    base.slots.iter().filter(is_visible).collect()
}

/// The records that a slot is built from.
fn slot_records(slot: &LiveSlot) -> HashSet<usize> {
    let (SlotSource::Record(source)
    | SlotSource::Checkpoint(source)
    | SlotSource::Inserted { compaction: source, .. }) = slot.source;
    slot.changes.iter().map(|change| change.compaction).chain([source]).collect()
}
