//! Forms: how long each text of a plan may be.

use std::collections::BTreeSet;
use std::ops::Range;

use super::SHORTEST_TOKENS;
use super::load::Load;
use crate::span::Spans;

/// What a plan of the last rung keeps, and how long each of its texts may be.
#[derive(Clone, Debug)]
pub(super) struct Forms<'a> {
    /// What must stay, and the frames of the requests.
    pub(super) base: &'a Spans,
    /// Entries that are sent word for word.
    pub(super) words: &'a BTreeSet<u64>,
    /// What must stay.
    pub(super) must_stay: &'a Spans,
    /// The longest text of it, in tokens.
    pub(super) must_level: u64,
    /// Everything from here on is kept, too.
    pub(super) start: u64,
    /// The longest text of it, in tokens.
    pub(super) level: u64,
    /// Older frames beside it, each with the longest text of its own.
    pub(super) older: Vec<(Range<u64>, u64)>,
    /// The end of the transcript.
    pub(super) end: u64,
}

impl Forms<'_> {
    /// All that is kept.
    pub(super) fn kept(&self) -> Spans {
        let older = self.older.iter().map(|(frame, _)| frame.clone());
        Spans::of(self.base.iter().chain(older).chain(Some(self.start..self.end)))
    }

    /// How long the texts of an entry may be, in tokens.
    pub(super) fn level_of(&self, seq: u64) -> u64 {
        if self.words.contains(&seq) {
            u64::MAX
        } else if self.must_stay.contains(seq) {
            self.must_level
        } else if seq >= self.start {
            self.level
        } else {
            let older = self.older.iter().find(|(frame, _)| frame.contains(&seq));
            older.map_or(SHORTEST_TOKENS, |(_, level)| *level)
        }
    }

    /// What entries cost in their forms.
    pub(super) fn tokens(&self, loads: &[Load]) -> u64 {
        let level = |load: &Load| load.seq.map_or(u64::MAX, |seq| self.level_of(seq));
        loads.iter().map(|load| load.tokens_at(level(load))).sum()
    }
}
