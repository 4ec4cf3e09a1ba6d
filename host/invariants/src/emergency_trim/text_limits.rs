//! Forms: how long each text of a plan may be.

use std::collections::BTreeSet;
use std::ops::Range;

use super::MIN_TEXT_TOKENS;
use super::cost::EntryCost;
use crate::ranges::RangeSet;

/// What a plan of the last rung keeps, and how long each of its texts may be.
#[derive(Clone, Debug)]
pub(super) struct TextLimits<'a> {
    /// What must stay, and the frames of the requests.
    pub(super) base: &'a RangeSet,
    /// Entries that are sent word for word.
    pub(super) verbatim: &'a BTreeSet<u64>,
    /// What must stay.
    pub(super) pinned: &'a RangeSet,
    /// The longest text of it, in tokens.
    pub(super) pinned_level: u64,
    /// Everything from here on is kept, too.
    pub(super) start: u64,
    /// The longest text of it, in tokens.
    pub(super) level: u64,
    /// Older frames beside it, each with the longest text of its own.
    pub(super) older: Vec<(Range<u64>, u64)>,
    /// The end of the transcript.
    pub(super) end: u64,
}

impl TextLimits<'_> {
    /// All that is kept.
    pub(super) fn kept(&self) -> RangeSet {
        let older = self.older.iter().map(|(frame, _)| frame.clone());
        RangeSet::from_ranges(self.base.iter().chain(older).chain(Some(self.start..self.end)))
    }

    /// How long the texts of an entry may be, in tokens.
    pub(super) fn level_of(&self, seq: u64) -> u64 {
        if self.verbatim.contains(&seq) {
            u64::MAX
        } else if self.pinned.contains(seq) {
            self.pinned_level
        } else if seq >= self.start {
            self.level
        } else {
            let older = self.older.iter().find(|(frame, _)| frame.contains(&seq));
            older.map_or(MIN_TEXT_TOKENS, |(_, level)| *level)
        }
    }

    /// What entries cost in their forms.
    pub(super) fn tokens(&self, loads: &[EntryCost]) -> u64 {
        let level = |load: &EntryCost| load.seq.map_or(u64::MAX, |seq| self.level_of(seq));
        loads.iter().map(|load| load.tokens_at(level(load))).sum()
    }
}
