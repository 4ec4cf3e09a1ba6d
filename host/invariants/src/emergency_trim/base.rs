//! The base: what must stay, and the person's requests word for word while they keep to their share.

use std::collections::BTreeSet;

use ctxhost_engine_api::Transcript;

use super::cost::{self, EntryCost};
use super::text_limits::TextLimits;
use super::{MIN_TEXT_TOKENS, highest_level};
use crate::InvariantSettings;
use crate::pinned::{PinnedEntries, frame_range};
use crate::ranges::RangeSet;

/// What every plan of the last rung begins with.
#[derive(Debug)]
pub(super) struct TrimBase {
    /// All of it, as whole frames.
    kept: RangeSet,
    must_stay: RangeSet,
    /// Requests that are sent word for word.
    words: BTreeSet<u64>,
    /// The longest text of what must stay, in tokens; `u64::MAX` where all of it fits.
    must_level: u64,
    /// What it costs.
    pub(super) tokens: u64,
    /// What the requests beside what must stay cost.
    pub(super) request_tokens: u64,
    end: u64,
}

impl TrimBase {
    /// The base within a budget.
    ///
    /// # Errors
    ///
    /// What it needs at the least, in tokens, where that is more.
    pub(super) fn new(
        view: &Transcript,
        anchors: &PinnedEntries,
        budget_tokens: u64,
        settings: &InvariantSettings,
    ) -> Result<TrimBase, u64> {
        let must_stay = anchors.all_ranges(view);
        let share_tokens = settings.request_share.of_tokens(budget_tokens);
        let alone = TrimBase::with(view, &must_stay, BTreeSet::new());
        let whole_tokens = alone.cost(&alone.costs(view), u64::MAX);
        if whole_tokens <= budget_tokens {
            let room_tokens = share_tokens.min(budget_tokens - whole_tokens);
            // The other entries of a request's frame cost a little, too: the newest requests go first.
            let mut words = requests(view, room_tokens, |seq| must_stay.contains(seq));
            loop {
                let base = TrimBase::with(view, &must_stay, words);
                let tokens = base.cost(&base.costs(view), u64::MAX);
                if tokens <= budget_tokens {
                    let request_tokens = tokens - whole_tokens;
                    return Ok(TrimBase { must_level: u64::MAX, tokens, request_tokens, ..base });
                }
                words = base.words;
                words.pop_first();
            }
        }
        let base = TrimBase::with(view, &must_stay, requests(view, share_tokens, |_| false));
        let fitted = base.fitted(view, budget_tokens);
        fitted.or_else(|_| {
            TrimBase::with(view, &must_stay, BTreeSet::new()).fitted(view, budget_tokens)
        })
    }

    fn with(view: &Transcript, must_stay: &RangeSet, words: BTreeSet<u64>) -> TrimBase {
        let frames = RangeSet::from_ranges(words.iter().map(|seq| frame_range(view, *seq)));
        let kept = must_stay.union(&frames);
        let (must_stay, end) = (must_stay.clone(), view.len() as u64);
        TrimBase { kept, must_stay, words, must_level: u64::MAX, tokens: 0, request_tokens: 0, end }
    }

    /// The same with the texts that must stay as long as the budget lets them be.
    fn fitted(self, view: &Transcript, budget_tokens: u64) -> Result<TrimBase, u64> {
        let loads = self.costs(view);
        match highest_level(budget_tokens, |level| self.cost(&loads, level)) {
            Some(level) => {
                let tokens = self.cost(&loads, level);
                Ok(TrimBase { must_level: level, tokens, ..self })
            }
            None => Err(self.cost(&loads, MIN_TEXT_TOKENS)),
        }
    }

    fn costs(&self, view: &Transcript) -> Vec<EntryCost> {
        self.kept.iter().flat_map(|range| cost::costs_of(view, range)).collect()
    }

    fn cost(&self, loads: &[EntryCost], must_level: u64) -> u64 {
        TextLimits { pinned_level: must_level, ..self.text_limits() }.tokens(loads)
    }

    /// Whether a frame is part of it.
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.kept.contains(seq)
    }

    /// Whether a frame must stay.
    pub(super) fn contains_pinned(&self, seq: u64) -> bool {
        self.must_stay.contains(seq)
    }

    /// Its forms, without anything beside it.
    pub(super) fn text_limits(&self) -> TextLimits<'_> {
        TextLimits {
            base: &self.kept,
            verbatim: &self.words,
            pinned: &self.must_stay,
            pinned_level: self.must_level,
            start: self.end,
            level: MIN_TEXT_TOKENS,
            older: Vec::new(),
            end: self.end,
        }
    }
}

/// The person's messages in so many tokens: all of them, or the newest that fit.
fn requests(
    view: &Transcript,
    room_tokens: u64,
    is_in_already: impl Fn(u64) -> bool,
) -> BTreeSet<u64> {
    let mut left_tokens = room_tokens;
    let mut words = BTreeSet::new();
    for entry in view.iter().rev().filter(|entry| entry.is_user_message()) {
        if left_tokens == 0 {
            break;
        }
        if is_in_already(entry.seq()) {
            continue;
        }
        // A pasted file among them keeps no older request out.
        if let Some(left) = left_tokens.checked_sub(entry.tokens()) {
            left_tokens = left;
            words.insert(entry.seq());
        }
    }
    words
}
