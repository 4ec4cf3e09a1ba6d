//! Finds the newest compaction after which no entry of a kind is in context any more.

use std::collections::HashMap;

use ctxhost_engine_api::transcript::log::NewEntry;

use super::super::Session;
use super::super::contents::SessionContents;
use super::super::live_slots::{LiveSlot, SlotSource};
use super::super::projection_items;
use super::super::record::{Record, RecordKind};
use super::{LiveTranscript, edit_of};

impl Session {
    /// The newest compaction of the branch that left no matching entry in context, although there was one before
    /// it. Every version of an entry is matched once, and every compaction is applied once.
    pub fn find_newest_loss(&self, is_match: impl Fn(&NewEntry) -> bool) -> Option<&Record> {
        let contents: &SessionContents = &self.contents;
        let mut search = LossSearch {
            live: LiveTranscript::from_path(contents, None, &[], &[]),
            is_match,
            of_records: HashMap::new(),
            of_changes: HashMap::new(),
        };
        contents.record_at(search.run(contents, &contents.tree.path())?)
    }
}

struct LossSearch<'a, F> {
    live: LiveTranscript<'a>,
    is_match: F,
    /// Whether the entry of each record matches, by its position.
    of_records: HashMap<usize, bool>,
    /// Whether other versions of entries match.
    of_changes: HashMap<SlotVersion, bool>,
}

/// The origin of an entry and its changes: compaction and item.
type SlotVersion = ((usize, Option<usize>), Vec<(usize, usize)>);

impl<F: Fn(&NewEntry) -> bool> LossSearch<'_, F> {
    /// The position of the compaction.
    fn run(&mut self, contents: &SessionContents, path: &[usize]) -> Option<usize> {
        let (mut newest, mut seen) = (None, 0);
        // Whether an entry matches after the newest compaction.
        let mut had_match = false;
        for (step, at) in path.iter().enumerate() {
            let Some(record) = contents.record_at(*at) else { continue };
            match record.kind() {
                RecordKind::Compaction => {
                    let added = self.live.slots.len();
                    self.live.add_records(path.get(seen..step));
                    let projection = projection_items::read_projection(record);
                    // It is compared with what it was made from, not with what the ignored ones left.
                    had_match = if self.live.undo_ignored(path, step, projection.as_ref()) {
                        self.matches_from(0)
                    } else {
                        had_match || self.matches_from(added)
                    };
                    self.live.compact(path, step, projection);
                    seen = step + 1;
                    let has_match = self.matches_from(0);
                    if had_match && !has_match {
                        newest = Some(*at);
                    }
                    had_match = has_match;
                }
                RecordKind::ContextEdit => had_match = self.edit(record),
                _ => {}
            }
        }
        newest
    }

    /// Applies a context edit. Returns whether an entry matches then.
    fn edit(&mut self, record: &Record) -> bool {
        if let Some((target, edit)) = edit_of(record) {
            // Edits are rare, and one may also change what a compaction changed.
            self.of_changes.clear();
            if let Some(at) = self.live.contents.tree.position(&target) {
                self.of_records.remove(&at);
            }
            self.live.edits.insert(target, edit);
        }
        self.matches_from(0)
    }

    /// Whether one of the entries from this slot on matches.
    fn matches_from(&mut self, begin: usize) -> bool {
        let LossSearch { live, is_match, of_records, of_changes } = self;
        let newest_first = live.slots.get(begin..).unwrap_or_default().iter().rev();
        let mut matches = newest_first.map(|slot| {
            let is_match = || live.entry(slot).is_some_and(|entry| is_match(&entry));
            match slot.source {
                SlotSource::Record(at) if slot.changes.is_empty() => {
                    *of_records.entry(at).or_insert_with(is_match)
                }
                _ => *of_changes.entry(version(slot)).or_insert_with(is_match),
            }
        });
        matches.any(|is_match| is_match)
    }
}

fn version(slot: &LiveSlot) -> SlotVersion {
    let source = match slot.source {
        SlotSource::Record(at) => (at, None),
        // A compaction has both a record and a checkpoint.
        SlotSource::Checkpoint(at) => (at, Some(usize::MAX)),
        SlotSource::Inserted { compaction, number, .. } => (compaction, Some(number)),
    };
    (source, slot.changes.iter().map(|change| (change.compaction, change.item)).collect())
}
