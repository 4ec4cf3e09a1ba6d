//! Cuts the results of the live round, if what must stay does not fit the budget otherwise.
//!
//! ```text
//!  pinned … newest request … [call RESULT RESULT]     the live round: the model has not answered it
//!                                  └ head, tail and the number of characters left out
//! ```
//!
//! Older entries can be dropped, masked or summarised. The live round cannot, so every engine cuts it
//! by the same rule: a half of the room is shared evenly, the other half goes to the newest results.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};
use serde::{Deserialize, Serialize};

use crate::caps::{LEAST_RESULT_CHARS, argument_cap_chars, cut_arguments, cut_result, fair_cap};
use crate::cuts::{protected_before, trailing_frame};
use crate::replacement::{Replacement, ReplacementBody, ReplacementMap, replace_kept};
use crate::settings::share_of;

/// Share of a budget for everything that must stay, from which the live round is cut.
// The rest is for the texts of an engine and the entries before the round.
const MUST_STAY_SHARE: f64 = 0.75;

/// The cut entries of a live round. They stay cut until the window moves, so that the prefix is stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRoundCuts {
    by_seq: BTreeMap<u64, EntryCut>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EntryCut {
    /// Limit of a result, or of each argument text of a call, in weighted characters.
    cap_chars: u64,
    saved_tokens: u64,
}

impl LiveRoundCuts {
    /// The cuts with which the live round and `other_tokens`, which must stay as well, take at most their
    /// share of a budget, as far as that is possible; none if they do already. `shown` is the size of an
    /// entry as the engine shows it.
    pub fn fit(
        transcript: &Transcript,
        other_tokens: u64,
        budget_tokens: u64,
        shown: impl Fn(&Entry<'_>) -> u64,
    ) -> LiveRoundCuts {
        let limit_tokens = share_of(budget_tokens, MUST_STAY_SHARE).saturating_sub(other_tokens);
        LiveRoundCuts::within(transcript, limit_tokens, shown)
    }

    /// The cuts with which the live round takes at most `limit_tokens`, as far as that is possible.
    pub fn within(
        transcript: &Transcript,
        limit_tokens: u64,
        shown: impl Fn(&Entry<'_>) -> u64,
    ) -> LiveRoundCuts {
        let round = trailing_frame(transcript)..transcript.len() as u64;
        let mut cuts = LiveRoundCuts::default();
        let all_tokens: u64 = transcript.range(round.clone()).map(|entry| shown(&entry)).sum();
        if all_tokens <= limit_tokens {
            return cuts;
        }
        let results = || transcript.range(round.clone()).rev().filter(is_result);
        let sizes: Vec<u64> = results().map(|entry| shown(&entry)).collect();
        let rest_tokens = all_tokens - sizes.iter().sum::<u64>();
        let caps = divide(&sizes, limit_tokens.saturating_sub(rest_tokens));
        for ((entry, size), cap_tokens) in results().zip(sizes).zip(caps) {
            if cap_tokens < size {
                cuts.add(&entry, cap_tokens * CHARS_PER_TOKEN, size);
            }
        }
        if all_tokens.saturating_sub(cuts.saved_tokens(round.clone())) > limit_tokens {
            let whole = std::iter::once(round.clone());
            let cap_chars = argument_cap_chars(transcript, whole, limit_tokens);
            let calls = transcript.range(round).filter(|entry| entry.has(Flags::TOOL_CALLS));
            for (call, cap_chars) in calls.filter_map(|call| Some((call, cap_chars?))) {
                cuts.add(&call, cap_chars, shown(&call));
            }
        }
        cuts
    }

    fn add(&mut self, entry: &Entry<'_>, cap_chars: u64, shown_tokens: u64) {
        let cut_tokens = cut_entry(entry, cap_chars, "").map(|shown| shown.tokens());
        let saved = cut_tokens.and_then(|tokens| shown_tokens.checked_sub(tokens));
        if let Some(saved_tokens) = saved.filter(|saved_tokens| *saved_tokens > 0) {
            self.by_seq.insert(entry.seq(), EntryCut { cap_chars, saved_tokens });
        }
    }

    /// Whether nothing is cut.
    pub fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    /// Whether an entry is cut.
    pub fn contains(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    /// What is left of the cut results, with their positions.
    pub fn texts(&self, transcript: &Transcript) -> impl Iterator<Item = (u64, String)> {
        self.by_seq.iter().filter_map(|(seq, cut)| {
            match cut_entry(&transcript.get(*seq)?, cut.cap_chars, "")?.body {
                ReplacementBody::Text(text) => Some((*seq, text)),
                ReplacementBody::Raw(_) => None,
            }
        })
    }

    /// The positions of the cut entries with the limit of each, in weighted characters.
    pub fn caps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_seq.iter().map(|(seq, cut)| (*seq, cut.cap_chars))
    }

    /// Tokens saved in a range.
    pub fn saved_tokens(&self, range: Range<u64>) -> u64 {
        self.by_seq.range(range).map(|(_, cut)| cut.saved_tokens).sum()
    }

    /// The cuts of a transcript that is sent as a whole with the replacements `shown`. Nothing is cut as long as it
    /// fits, or as leaving out older entries would be enough.
    pub fn fit_shown(
        transcript: &Transcript,
        shown: &ReplacementMap,
        budget_tokens: u64,
    ) -> LiveRoundCuts {
        if shown.shown_tokens(transcript) <= budget_tokens {
            return LiveRoundCuts::default();
        }
        let size =
            |entry: &Entry<'_>| shown.get(entry.seq()).map_or(entry.tokens(), Replacement::tokens);
        let other_tokens = other_tokens(transcript, size);
        LiveRoundCuts::fit(transcript, other_tokens, budget_tokens, size)
    }

    /// The cut entries of a range, in the name of `layer`.
    pub fn replacements<'t>(
        &self,
        transcript: &'t Transcript,
        range: Range<u64>,
        layer: &'static str,
    ) -> impl Iterator<Item = (Entry<'t>, Replacement)> {
        self.by_seq.range(range).filter_map(move |(seq, cut)| {
            let entry = transcript.get(*seq)?;
            Some((entry, cut_entry(&entry, cut.cap_chars, layer)?))
        })
    }

    /// Cuts the entries in a plan that keeps them, in the name of `layer`.
    pub fn apply(&self, plan: &mut Plan, transcript: &Transcript, layer: &'static str) {
        if self.is_empty() {
            return;
        }
        replace_kept(plan, |range| {
            let cut = self.replacements(transcript, range, layer);
            cut.map(|(entry, cut)| (entry.seq(), cut)).collect()
        });
    }

    /// Drops the cuts before a position.
    pub fn drop_before(&mut self, seq: u64) {
        self.by_seq = self.by_seq.split_off(&seq);
    }
}

/// Size of what must stay before the live round: pinned entries and the newest request.
pub fn other_tokens(transcript: &Transcript, shown: impl Fn(&Entry<'_>) -> u64) -> u64 {
    let ranges = protected_before(transcript, trailing_frame(transcript), 0..0);
    ranges.into_iter().flat_map(|range| transcript.range(range)).map(|entry| shown(&entry)).sum()
}

fn is_result(entry: &Entry<'_>) -> bool {
    entry.role() == Role::Tool && !entry.has(Flags::ORPHAN) && !entry.has(Flags::PINNED)
}

fn cut_entry(entry: &Entry<'_>, cap_chars: u64, layer: &'static str) -> Option<Replacement> {
    match entry.role() {
        Role::Tool => cut_result(entry, cap_chars, layer),
        _ => cut_arguments(entry, cap_chars, layer),
    }
}

/// The limit of each result, newest first: half of the room evenly, the rest for the newest.
fn divide(sizes: &[u64], room_tokens: u64) -> Vec<u64> {
    let least_tokens = LEAST_RESULT_CHARS / CHARS_PER_TOKEN;
    let level = fair_cap(sizes.to_vec(), room_tokens / 2).unwrap_or(u64::MAX).max(least_tokens);
    let mut left_tokens =
        room_tokens.saturating_sub(sizes.iter().map(|size| level.min(*size)).sum::<u64>());
    let mut caps = Vec::with_capacity(sizes.len());
    for size in sizes {
        let even = level.min(*size);
        let more = left_tokens.min(size - even);
        left_tokens -= more;
        caps.push(even + more);
    }
    caps
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{TranscriptBuilder, plan_fault};

    use super::*;

    fn round(sizes: &[usize]) -> TranscriptBuilder {
        let ids: Vec<String> = (0..sizes.len()).map(|at| format!("c{at}")).collect();
        let mut talk = TranscriptBuilder::new();
        talk.user("read the files")
            .calls(&ids.iter().map(|id| (id.as_str(), "read", "{}")).collect::<Vec<_>>());
        for (id, size) in ids.iter().zip(sizes) {
            talk.result(id, "read", &format!("begin {} the end", "line of text\n".repeat(*size)));
        }
        talk
    }

    fn shown(talk: &TranscriptBuilder, budget_tokens: u64) -> (u64, Vec<u64>) {
        let transcript = talk.transcript();
        let other = other_tokens(&transcript, |e| e.tokens());
        let cuts = LiveRoundCuts::fit(&transcript, other, budget_tokens, |e| e.tokens());
        let len = talk.len();
        let tokens = transcript.total_tokens() - cuts.saved_tokens(0..len);
        let results = transcript.iter().filter(|entry| entry.role() == Role::Tool);
        let size =
            |entry: Entry<'_>| entry.tokens() - cuts.saved_tokens(entry.seq()..entry.seq() + 1);
        (tokens, results.map(size).collect())
    }

    #[test]
    fn a_round_that_fits_stays_whole() {
        let talk = round(&[100, 40]);
        let tokens = talk.transcript().total_tokens();
        assert_eq!(shown(&talk, tokens * 2).0, tokens);
    }

    #[test]
    fn a_result_larger_than_the_budget_keeps_head_and_tail() {
        let talk = round(&[3_000]);
        let (tokens, _) = shown(&talk, 4_000);
        assert!((2_500..=3_000).contains(&tokens), "{tokens}");
        let transcript = talk.transcript();
        let cuts = LiveRoundCuts::fit(&transcript, 0, 4_000, |e| e.tokens());
        let mut plan = Plan::keep_all(3);
        cuts.apply(&mut plan, &transcript, "test");
        assert_eq!(plan_fault(&plan, &transcript), None);
        let items = plan.project(&transcript);
        let text = items[2].text();
        assert!(text.starts_with("begin") && text.contains("characters left out"), "{text}");
        let tokens: u64 = items.iter().map(|item| item.tokens()).sum();
        assert_eq!(tokens, transcript.total_tokens() - cuts.saved_tokens(0..3));
    }

    #[test]
    fn the_newest_results_keep_the_most() {
        let (tokens, sizes) = shown(&round(&[2_000, 2_000, 10, 2_000]), 6_000);
        assert!(tokens <= 4_500, "{tokens}");
        assert!(sizes[3] > sizes[1] && sizes[1] == sizes[0] && sizes[2] < 50, "{sizes:?}");
        assert!(sizes[0] >= 700, "{sizes:?}");
    }

    #[test]
    fn arguments_are_cut_where_results_are_not_enough() {
        let write = format!(r#"{{"path":"a.rs","content":"{}"}}"#, "text ".repeat(8_000));
        let mut talk = TranscriptBuilder::new();
        talk.user("write").calls(&[("a", "write", &write)]).result("a", "write", "done");
        assert!(shown(&talk, 2_000).0 <= 1_500);
    }

    #[test]
    fn cuts_survive_json_and_are_dropped_with_their_entries() {
        let transcript = round(&[2_000, 2_000]).transcript();
        let mut cuts = LiveRoundCuts::fit(&transcript, 0, 2_000, |e| e.tokens());
        let json = serde_json::to_string(&cuts).unwrap();
        assert_eq!(serde_json::from_str::<LiveRoundCuts>(&json).unwrap(), cuts);
        assert!(cuts.contains(2) && cuts.contains(3) && cuts.caps().count() == 2);
        cuts.drop_before(3);
        assert!(!cuts.contains(2) && cuts.contains(3));
        cuts.drop_before(9);
        assert!(cuts.is_empty());
    }
}
