//! The base of an emergency trim: pinned entries, and user requests verbatim within their share.

use std::collections::BTreeSet;

use ctxhost_engine_api::{Entry, Transcript};
use ctxhost_engine_kit::requests::{RequestRoom, SizedRequest, choose_requests};

use super::cost::{self, EntryCost};
use super::shorten::MIN_TEXT_TOKENS;
use super::text_limits::{TextLimits, highest_level};
use crate::pinned::{PinnedEntries, frame_range};
use crate::ranges::RangeSet;
use crate::settings::InvariantSettings;

/// The newest user messages that a trim chooses from. It runs for every request of a full session, and looking for
/// rules and facts takes time.
const READ_REQUESTS: usize = 400;

/// What every emergency trim contains.
#[derive(Debug)]
pub(super) struct TrimBase {
    /// All of it, as whole frames.
    kept: RangeSet,
    pinned: RangeSet,
    /// User requests that are sent verbatim.
    verbatim: BTreeSet<u64>,
    /// The longest text of pinned entries, in tokens; `u64::MAX` where all of them fit whole.
    pinned_level: u64,
    /// Its cost.
    pub(super) tokens: u64,
    /// The cost of the requests that are not pinned.
    pub(super) request_tokens: u64,
    end: u64,
}

impl TrimBase {
    /// The base within a budget.
    ///
    /// # Errors
    ///
    /// The tokens that it needs at the least, where they exceed the budget.
    pub(super) fn new(
        view: &Transcript,
        pinned_entries: &PinnedEntries,
        budget_tokens: u64,
        settings: &InvariantSettings,
    ) -> Result<TrimBase, u64> {
        let pinned = pinned_entries.all_ranges(view);
        let share_tokens = settings.request_share.of_tokens(budget_tokens);
        let whole_tokens = TrimBase::pinned_tokens(view, pinned_entries);
        if whole_tokens <= budget_tokens {
            let room_tokens = share_tokens.min(budget_tokens - whole_tokens);
            // Other entries in the frames of requests cost tokens as well, so the oldest requests may have to go.
            let mut verbatim = requests(view, room_tokens, |seq| pinned.contains(seq));
            loop {
                let base = TrimBase::with(view, &pinned, verbatim);
                let tokens = base.cost(&base.costs(view), u64::MAX);
                if tokens <= budget_tokens {
                    let request_tokens = tokens - whole_tokens;
                    return Ok(TrimBase { pinned_level: u64::MAX, tokens, request_tokens, ..base });
                }
                verbatim = base.verbatim;
                verbatim.pop_first();
            }
        }
        let base = TrimBase::with(view, &pinned, requests(view, share_tokens, |_| false));
        let fitted = base.fitted(view, budget_tokens);
        // Short requests of the user are dropped last, but dropped before the prompt fails.
        fitted
            .or_else(|_| TrimBase::with(view, &pinned, BTreeSet::new()).fitted(view, budget_tokens))
    }

    /// The tokens of the pinned entries alone, in full.
    pub(super) fn pinned_tokens(view: &Transcript, pinned_entries: &PinnedEntries) -> u64 {
        let alone = TrimBase::with(view, &pinned_entries.all_ranges(view), BTreeSet::new());
        alone.cost(&alone.costs(view), u64::MAX)
    }

    fn with(view: &Transcript, pinned: &RangeSet, verbatim: BTreeSet<u64>) -> TrimBase {
        let frames = RangeSet::from_ranges(verbatim.iter().map(|seq| frame_range(view, *seq)));
        let kept = pinned.union(&frames);
        let (pinned, end) = (pinned.clone(), view.len() as u64);
        TrimBase {
            kept,
            pinned,
            verbatim,
            pinned_level: u64::MAX,
            tokens: 0,
            request_tokens: 0,
            end,
        }
    }

    /// Shortens pinned texts to the longest length that fits the budget.
    fn fitted(self, view: &Transcript, budget_tokens: u64) -> Result<TrimBase, u64> {
        let costs = self.costs(view);
        match highest_level(budget_tokens, |level| self.cost(&costs, level)) {
            Some(level) => {
                let tokens = self.cost(&costs, level);
                Ok(TrimBase { pinned_level: level, tokens, ..self })
            }
            None => Err(self.cost(&costs, MIN_TEXT_TOKENS)),
        }
    }

    fn costs(&self, view: &Transcript) -> Vec<EntryCost> {
        self.kept.iter().flat_map(|range| cost::costs_of(view, range)).collect()
    }

    fn cost(&self, costs: &[EntryCost], pinned_level: u64) -> u64 {
        TextLimits { pinned_level, ..self.text_limits() }.tokens(costs)
    }

    /// Whether an entry is in the base.
    pub(super) fn contains(&self, seq: u64) -> bool {
        self.kept.contains(seq)
    }

    /// Whether an entry is pinned.
    pub(super) fn contains_pinned(&self, seq: u64) -> bool {
        self.pinned.contains(seq)
    }

    /// The limits of the base alone.
    pub(super) fn text_limits(&self) -> TextLimits<'_> {
        TextLimits {
            base: &self.kept,
            verbatim: &self.verbatim,
            pinned: &self.pinned,
            pinned_level: self.pinned_level,
            start: self.end,
            level: MIN_TEXT_TOKENS,
            older: Vec::new(),
            end: self.end,
        }
    }
}

/// The user messages that fit: those with a rule in half of the room, then the others, each newest first.
fn requests(
    view: &Transcript,
    room_tokens: u64,
    is_included: impl Fn(u64) -> bool,
) -> BTreeSet<u64> {
    if room_tokens == 0 {
        return BTreeSet::new();
    }
    let is_request = |entry: &Entry<'_>| entry.is_user_message() || entry.is_instruction();
    let messages = view.iter().rev().filter(is_request);
    let messages = messages.filter(|entry| !is_included(entry.seq()));
    // A pasted file that does not fit must not keep out older requests.
    let fitting = messages.filter(|entry| entry.tokens() <= room_tokens).take(READ_REQUESTS);
    let sizes: Vec<SizedRequest> = fitting
        // What is verbatim here has its images; the text of others is in the ledger.
        .map(|entry| SizedRequest {
            text_tokens: entry.tokens(),
            least_tokens: entry.tokens(),
            ..SizedRequest::new(&entry)
        })
        .collect();
    let room = RequestRoom { tokens: room_tokens, long_tokens: 0, may_shorten: true };
    choose_requests(sizes.into_iter(), room, |_| false).into_keys().collect()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn a_rule_is_kept_before_newer_thanks() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Always write tests in tests/.").assistant("Yes.");
        (0..40).for_each(|_| _ = talk.user("Thanks, that is fine.").assistant("Gladly."));
        let kept = requests(&talk.transcript(), 40, |_| false);
        assert!(kept.contains(&0) && kept.contains(&80) && kept.len() > 3, "{kept:?}");
        assert!(requests(&talk.transcript(), 0, |_| false).is_empty());
    }
}
