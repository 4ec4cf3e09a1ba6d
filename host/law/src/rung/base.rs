//! The base: what must stay, and the person's requests word for word while they keep to their share.

use std::collections::BTreeSet;

use ctxhost_engine_api::Transcript;

use super::forms::Forms;
use super::load::{self, Load};
use super::{SHORTEST_TOKENS, highest_level};
use crate::LawSettings;
use crate::keep::{Anchors, frame_of};
use crate::span::Spans;

/// What every plan of the last rung begins with.
#[derive(Debug)]
pub(super) struct Base {
    /// All of it, as whole frames.
    kept: Spans,
    must_stay: Spans,
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

impl Base {
    /// The base within a budget.
    ///
    /// # Errors
    ///
    /// What it needs at the least, in tokens, where that is more.
    pub(super) fn of(
        view: &Transcript,
        anchors: &Anchors,
        budget_tokens: u64,
        settings: &LawSettings,
    ) -> Result<Base, u64> {
        let must_stay = anchors.must_stay(view);
        let share_tokens = settings.request_share.of_tokens(budget_tokens);
        let alone = Base::with(view, &must_stay, BTreeSet::new());
        let whole_tokens = alone.cost(&alone.loads(view), u64::MAX);
        if whole_tokens <= budget_tokens {
            let room_tokens = share_tokens.min(budget_tokens - whole_tokens);
            // The other entries of a request's frame cost a little, too: the newest requests go first.
            let mut words = requests(view, room_tokens, |seq| must_stay.contains(seq));
            loop {
                let base = Base::with(view, &must_stay, words);
                let tokens = base.cost(&base.loads(view), u64::MAX);
                if tokens <= budget_tokens {
                    let request_tokens = tokens - whole_tokens;
                    return Ok(Base { must_level: u64::MAX, tokens, request_tokens, ..base });
                }
                words = base.words;
                words.pop_first();
            }
        }
        let base = Base::with(view, &must_stay, requests(view, share_tokens, |_| false));
        let fitted = base.fitted(view, budget_tokens);
        fitted
            .or_else(|_| Base::with(view, &must_stay, BTreeSet::new()).fitted(view, budget_tokens))
    }

    fn with(view: &Transcript, must_stay: &Spans, words: BTreeSet<u64>) -> Base {
        let frames = Spans::of(words.iter().map(|seq| frame_of(view, *seq)));
        let kept = must_stay.with(&frames);
        let (must_stay, end) = (must_stay.clone(), view.len() as u64);
        Base { kept, must_stay, words, must_level: u64::MAX, tokens: 0, request_tokens: 0, end }
    }

    /// The same with the texts that must stay as long as the budget lets them be.
    fn fitted(self, view: &Transcript, budget_tokens: u64) -> Result<Base, u64> {
        let loads = self.loads(view);
        match highest_level(budget_tokens, |level| self.cost(&loads, level)) {
            Some(level) => {
                let tokens = self.cost(&loads, level);
                Ok(Base { must_level: level, tokens, ..self })
            }
            None => Err(self.cost(&loads, SHORTEST_TOKENS)),
        }
    }

    fn loads(&self, view: &Transcript) -> Vec<Load> {
        self.kept.iter().flat_map(|range| load::of(view, range)).collect()
    }

    fn cost(&self, loads: &[Load], must_level: u64) -> u64 {
        Forms { must_level, ..self.forms() }.tokens(loads)
    }

    /// Whether a frame is part of it.
    pub(super) fn holds(&self, seq: u64) -> bool {
        self.kept.contains(seq)
    }

    /// Whether a frame must stay.
    pub(super) fn must_hold(&self, seq: u64) -> bool {
        self.must_stay.contains(seq)
    }

    /// Its forms, without anything beside it.
    pub(super) fn forms(&self) -> Forms<'_> {
        Forms {
            base: &self.kept,
            words: &self.words,
            must_stay: &self.must_stay,
            must_level: self.must_level,
            start: self.end,
            level: SHORTEST_TOKENS,
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
