//! Which records the next turn needs: those behind the live entries, and what else is asked of a session
//! that is opened.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Held, Place, SavedSlot, SavedSource};
use crate::adoption;
use crate::compaction::is_in_context;
use crate::contents::Contents;
use crate::live::{Slot, Source, Standing, edit_target};
use crate::record::Record;

/// Positions of records, in file order, and the branch up to the compaction.
#[derive(Debug)]
pub(super) struct Needed {
    positions: BTreeSet<usize>,
    path: Vec<usize>,
}

impl Needed {
    /// What is needed where the session stands behind a compaction.
    pub(super) fn of(contents: &Contents, standing: &Standing) -> Needed {
        let mut path: Vec<usize> = contents.tree.path_backwards_from(standing.at).collect();
        path.reverse();
        let mut needed = Needed { positions: BTreeSet::from([standing.at]), path };
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

    fn add_calls_of_nameless_results(&mut self, contents: &Contents, visible: &[&Slot]) {
        for slot in visible {
            if let Source::Record(at) = slot.source
                && let Some(record) = contents.at(at)
            {
                let found = adoption::leans_on(contents, record, contents.parent_of(record));
                self.positions.extend(found.unwrap_or_default());
            }
        }
    }

    fn add_first_task_and_model(&mut self, contents: &Contents) {
        let is = |at: &usize, what: fn(&Record) -> bool| contents.at(*at).is_some_and(what);
        let first_task = contents.first_task.filter(|task| self.path.contains(task));
        let names_model = |at: &usize| is(at, |record| record.model().is_some());
        let model = self.path.iter().rev().copied().find(names_model);
        self.positions.extend(first_task.into_iter().chain(model));
    }

    /// The newest edit of each record that is needed.
    fn add_edits(&mut self, contents: &Contents) {
        let edits = self.path.iter().filter_map(|at| Some((edit_target(contents.at(*at)?)?, *at)));
        let newest: BTreeMap<String, usize> = edits.collect();
        let is_needed = |target: &str| {
            contents.tree.position(target).is_some_and(|at| self.positions.contains(&at))
        };
        let needed = newest.into_iter().filter(|(target, _)| is_needed(target));
        let needed: Vec<usize> = needed.map(|(_, edit)| edit).collect();
        self.positions.extend(needed);
    }

    /// What ctxhost keeps in records, on whatever branch.
    fn add_own_state(&mut self, contents: &Contents, last: usize) {
        let records = contents.records.iter().take(last).enumerate();
        let own = records.filter(|(_, record)| record.is_state_of_ctxhost()).map(|(at, _)| at);
        self.positions.extend(own);
    }

    /// The records with their places.
    pub(super) fn held(&self, contents: &Contents, places: &[Place]) -> Vec<Held> {
        let mut on_branch = self.marks_on_branch(contents);
        let held = self.positions.iter().zip(places).map(|(at, place)| {
            let (is_cut, hides) = on_branch.remove(at).unwrap_or_default();
            Held { place: *place, on_branch: self.is_on_branch(*at), is_cut, hides }
        });
        held.collect()
    }

    fn is_on_branch(&self, position: usize) -> bool {
        // A record that follows another one stands behind it.
        self.path.binary_search(&position).is_ok()
    }

    /// What is left out before each record of the branch: anything, and anything in context.
    fn marks_on_branch(&self, contents: &Contents) -> BTreeMap<usize, (bool, bool)> {
        let mut marks = BTreeMap::new();
        let (mut is_cut, mut hides) = (false, false);
        for at in &self.path {
            if let Some(older) = &contents.older {
                is_cut |= older.is_cut_before(*at);
                hides |= older.hides_before(*at);
            }
            if self.positions.contains(at) {
                marks.insert(*at, (is_cut, hides));
                (is_cut, hides) = (false, false);
            } else {
                is_cut = true;
                hides = hides || contents.at(*at).is_some_and(is_in_context);
            }
        }
        marks
    }

    /// The live entries, by the numbers of the records.
    pub(super) fn saved(&self, contents: &Contents, standing: &Standing) -> Vec<SavedSlot> {
        let numbers: BTreeMap<usize, usize> =
            self.positions.iter().enumerate().map(|(number, at)| (*at, number)).collect();
        let number = |at: &usize| numbers.get(at).copied().unwrap_or_default();
        let saved = visible(contents, standing).into_iter().map(|slot| SavedSlot {
            source: match &slot.source {
                Source::Record(at) => SavedSource::Record(number(at)),
                Source::Checkpoint(at) => SavedSource::Checkpoint(number(at)),
                Source::Inserted { compaction, item, .. } => {
                    SavedSource::Inserted(number(compaction), *item)
                }
            },
            changes: slot.changes.iter().map(|it| (number(&it.compaction), it.item)).collect(),
        });
        saved.collect()
    }
}

/// Without records that can never be in context.
fn visible<'a>(contents: &Contents, standing: &'a Standing) -> Vec<&'a Slot> {
    let can_be_seen = |slot: &&Slot| match slot.source {
        Source::Record(at) => contents.at(at).is_some_and(|record| record.to_entry().is_some()),
        Source::Checkpoint(_) | Source::Inserted { .. } => true,
    };
    standing.slots.iter().filter(can_be_seen).collect()
}

fn positions_of(slot: &Slot) -> HashSet<usize> {
    let (Source::Record(source)
    | Source::Checkpoint(source)
    | Source::Inserted { compaction: source, .. }) = slot.source;
    slot.changes.iter().map(|change| change.compaction).chain([source]).collect()
}
