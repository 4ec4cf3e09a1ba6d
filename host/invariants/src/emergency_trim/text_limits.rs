//! The length limit of each text in an emergency trim, and the plan that applies them.

use std::collections::BTreeSet;
use std::ops::Range;

use ctxhost_engine_api::{Plan, Role, Transcript};

use super::cost::{EntryCost, LAYER, shorten_entry};
use super::shorten::MIN_TEXT_TOKENS;
use crate::ranges::RangeSet;

/// The entries that an emergency trim keeps, and the length limits of their texts.
#[derive(Clone, Debug)]
pub(super) struct TextLimits<'a> {
    /// Pinned entries and the frames of user requests.
    pub(super) base: &'a RangeSet,
    /// Entries that are sent verbatim.
    pub(super) verbatim: &'a BTreeSet<u64>,
    /// Pinned entries.
    pub(super) pinned: &'a RangeSet,
    /// The longest text of pinned entries, in tokens.
    pub(super) pinned_level: u64,
    /// The start of the newest frames, which are kept.
    pub(super) start: u64,
    /// The longest text of the newest frames, in tokens.
    pub(super) level: u64,
    /// Older frames, each with its longest text.
    pub(super) older: Vec<(Range<u64>, u64)>,
    /// The end of the transcript.
    pub(super) end: u64,
}

impl TextLimits<'_> {
    /// The ranges that are kept.
    pub(super) fn kept(&self) -> RangeSet {
        let older = self.older.iter().map(|(frame, _)| frame.clone());
        RangeSet::from_ranges(self.base.iter().chain(older).chain(Some(self.start..self.end)))
    }

    /// The longest text of an entry, in tokens.
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

    /// The cost of entries within their limits.
    pub(super) fn tokens(&self, costs: &[EntryCost]) -> u64 {
        let level = |cost: &EntryCost| cost.seq.map_or(u64::MAX, |seq| self.level_of(seq));
        costs.iter().map(|cost| cost.tokens_at(level(cost))).sum()
    }

    /// The plan that keeps the entries within their limits, with the ledger after the range it covers.
    pub(super) fn plan(&self, view: &Transcript, mut ledger: Option<TrimLedger>) -> Plan {
        let mut plan = Plan::default();
        let insert = |plan: &mut Plan, TrimLedger { covers, text }| {
            plan.insert(Role::User, text, covers).note(LAYER, "what is left out, in short");
        };
        for entry in self.kept().iter().flat_map(|range| view.range(range)) {
            let seq = entry.seq();
            if let Some(ledger) = ledger.take_if(|ledger| ledger.covers.end <= seq) {
                insert(&mut plan, ledger);
            }
            match shorten_entry(&entry, self.level_of(seq)) {
                Some(op) => plan.ops.push(op),
                None => _ = plan.keep(seq..seq + 1),
            }
        }
        if let Some(ledger) = ledger {
            insert(&mut plan, ledger);
        }
        plan
    }
}

/// The text of a ledger and the range it covers.
pub(super) struct TrimLedger {
    pub(super) covers: Range<u64>,
    pub(super) text: String,
}

/// The greatest text length with which the cost stays within the budget.
pub(super) fn highest_level(budget_tokens: u64, cost: impl Fn(u64) -> u64) -> Option<u64> {
    if cost(MIN_TEXT_TOKENS) > budget_tokens {
        return None;
    }
    // By bisection: a count is linear in the entries, and the budget may be a million tokens.
    let (mut fits, mut too_high) = (MIN_TEXT_TOKENS, budget_tokens.max(MIN_TEXT_TOKENS) + 1);
    while too_high - fits > 1 {
        let middle = fits + (too_high - fits) / 2;
        if cost(middle) <= budget_tokens { fits = middle } else { too_high = middle }
    }
    Some(fits)
}
