//! Which records the next turn needs: those behind the live entries, and what else is asked of a session
//! that is opened.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{CheckpointRecord, LinePosition, SavedSlot, SavedSource};
use crate::compaction::is_in_context;
use crate::contents::SessionContents;
use crate::live_transcript::{LiveBase, LiveSlot, SlotSource, edit_target};
use crate::orphan_results;
use crate::record::Record;

/// Positions of records, in file order, and the branch up to the compaction.
#[derive(Debug)]
pub(super) struct WorkingSet {
    positions: BTreeSet<usize>,
    path: Vec<usize>,
}

impl WorkingSet {
    /// What is needed where the session stands behind a compaction.
    pub(super) fn compute(contents: &SessionContents, standing: &LiveBase) -> WorkingSet {
        let mut path: Vec<usize> = contents.tree.path_backwards_from(standing.at).collect();
        path.reverse();
        let mut needed = WorkingSet { positions: BTreeSet::from([standing.at]), path };
        let visible = visible(contents, standing);
        needed.positions.extend(visible.iter().flat_map(|slot| positions_of(slot)));
        needed.add_calls_of_nameless_results(contents, &visible);
        needed.add_first_task_and_model(contents);
        needed.add_edits(contents);
        needed.add_own_state(contents, standing.at);
        needed
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        self.positions.iter().copied()
    }

    pub(super) fn contains(&self, position: usize) -> bool {
        self.positions.contains(&position)
    }

    fn add_calls_of_nameless_results(&mut self, contents: &SessionContents, visible: &[&LiveSlot]) {
        for slot in visible {
            if let SlotSource::Record(at) = slot.source
                && let Some(record) = contents.record_at(at)
            {
                let found =
                    orphan_results::call_records(contents, record, contents.parent_of(record));
                self.positions.extend(found.unwrap_or_default());
            }
        }
    }

    fn add_first_task_and_model(&mut self, contents: &SessionContents) {
        let is = |at: &usize, what: fn(&Record) -> bool| contents.record_at(*at).is_some_and(what);
        let first_task = contents.first_task.filter(|task| self.path.contains(task));
        let names_model = |at: &usize| is(at, |record| record.model().is_some());
        let model = self.path.iter().rev().copied().find(names_model);
        self.positions.extend(first_task.into_iter().chain(model));
    }

    /// The newest edit of each record that is needed.
    fn add_edits(&mut self, contents: &SessionContents) {
        let edits =
            self.path.iter().filter_map(|at| Some((edit_target(contents.record_at(*at)?)?, *at)));
        let newest: BTreeMap<String, usize> = edits.collect();
        let is_needed = |target: &str| {
            contents.tree.position(target).is_some_and(|at| self.positions.contains(&at))
        };
        let needed = newest.into_iter().filter(|(target, _)| is_needed(target));
        let needed: Vec<usize> = needed.map(|(_, edit)| edit).collect();
        self.positions.extend(needed);
    }

    /// What ctxhost keeps in records, on whatever branch.
    fn add_own_state(&mut self, contents: &SessionContents, last: usize) {
        let records = contents.records.iter().take(last).enumerate();
        let own = records.filter(|(_, record)| record.is_host_state()).map(|(at, _)| at);
        self.positions.extend(own);
    }

    /// The records with their places.
    pub(super) fn checkpoint_records(
        &self,
        contents: &SessionContents,
        places: &[LinePosition],
    ) -> Vec<CheckpointRecord> {
        let mut on_branch = self.marks_on_branch(contents);
        let held = self.positions.iter().zip(places).map(|(at, place)| {
            let (is_cut, hides) = on_branch.remove(at).unwrap_or_default();
            CheckpointRecord { place: *place, on_branch: self.is_on_branch(*at), is_cut, hides }
        });
        held.collect()
    }

    fn is_on_branch(&self, position: usize) -> bool {
        // A record that follows another one stands behind it.
        self.path.binary_search(&position).is_ok()
    }

    /// What is left out before each record of the branch: anything, and anything in context.
    fn marks_on_branch(&self, contents: &SessionContents) -> BTreeMap<usize, (bool, bool)> {
        let mut marks = BTreeMap::new();
        let (mut is_cut, mut hides) = (false, false);
        for at in &self.path {
            if let Some(older) = &contents.skipped {
                is_cut |= older.has_gap_before(*at);
                hides |= older.hides_entry_before(*at);
            }
            if self.positions.contains(at) {
                marks.insert(*at, (is_cut, hides));
                (is_cut, hides) = (false, false);
            } else {
                is_cut = true;
                hides = hides || contents.record_at(*at).is_some_and(is_in_context);
            }
        }
        marks
    }

    /// The live entries, by the numbers of the records.
    pub(super) fn saved_slots(
        &self,
        contents: &SessionContents,
        standing: &LiveBase,
    ) -> Vec<SavedSlot> {
        let numbers: BTreeMap<usize, usize> =
            self.positions.iter().enumerate().map(|(number, at)| (*at, number)).collect();
        let number = |at: &usize| numbers.get(at).copied().unwrap_or_default();
        let saved = visible(contents, standing).into_iter().map(|slot| SavedSlot {
            source: match &slot.source {
                SlotSource::Record(at) => SavedSource::Record(number(at)),
                SlotSource::Checkpoint(at) => SavedSource::Checkpoint(number(at)),
                SlotSource::Inserted { compaction, item, .. } => {
                    SavedSource::Inserted(number(compaction), *item)
                }
            },
            changes: slot.changes.iter().map(|it| (number(&it.compaction), it.item)).collect(),
        });
        saved.collect()
    }
}

/// Without records that can never be in context.
fn visible<'a>(contents: &SessionContents, standing: &'a LiveBase) -> Vec<&'a LiveSlot> {
    let can_be_seen = |slot: &&LiveSlot| match slot.source {
        SlotSource::Record(at) => {
            contents.record_at(at).is_some_and(|record| record.to_entry().is_some())
        }
        SlotSource::Checkpoint(_) | SlotSource::Inserted { .. } => true,
    };
    standing.slots.iter().filter(can_be_seen).collect()
}

fn positions_of(slot: &LiveSlot) -> HashSet<usize> {
    let (SlotSource::Record(source)
    | SlotSource::Checkpoint(source)
    | SlotSource::Inserted { compaction: source, .. }) = slot.source;
    slot.changes.iter().map(|change| change.compaction).chain([source]).collect()
}
