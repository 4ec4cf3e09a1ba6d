//! Ranks the slices of a session for a query.
//!
//! A slice scores by its own terms, by its best neighbour and by the best of its segment, because
//! an answer is often next to the words of the question. The score is divided by the root of the
//! size, so that short slices leave room for more. User messages count twice, because only the user
//! can repeat them.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_kit::search::{SliceScores, for_each_term, sort_best_first};

use crate::session::RecallSession;

/// Weights of the best neighbour and the best of the segment.
const NEIGHBOUR_SHARE: f32 = 0.5;
const SEGMENT_SHARE: f32 = 0.5;
/// Weight of user messages.
// The model can repeat its own work, but only the user knows what was asked.
const USER_WEIGHT: f32 = 2.0;
/// Fixed cost of a slice besides its tokens.
const OVERHEAD_TOKENS: f32 = 8.0;
/// Entries whose segments are ranked.
// Far more than any budget holds.
const BEST_ENTRIES: usize = 256;
/// Weight of terms from the context.
const CONTEXT_WEIGHT: f32 = 0.3;

/// A weighted set of terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchQuery {
    terms: Vec<(u64, f32)>,
}

impl SearchQuery {
    /// The terms of a prompt, and with less weight those of the current work.
    pub(crate) fn new(prompt: &str, context: &str) -> SearchQuery {
        let mut seen = HashSet::new();
        let mut terms = Vec::new();
        for (text, weight) in [(prompt, 1.0), (context, CONTEXT_WEIGHT)] {
            for_each_term(text, |term| {
                // A term in both parts counts with the weight of the prompt.
                if seen.insert(term) {
                    terms.push((term, weight));
                }
            });
        }
        SearchQuery { terms }
    }
}

/// A slice number and its score per token.
pub(crate) type RankedSlice = (u32, f32);

impl RecallSession {
    /// Ranks the slices for a query, best first.
    pub(crate) fn rank(&self, query: &SearchQuery) -> Vec<RankedSlice> {
        self.rank_by(&self.index.search(&query.terms))
    }

    /// Ranks the slices by words and, if there are scores for it, by meaning. The score is the sum of
    /// `1 / (fusion_rank + rank)` over both rankings (reciprocal rank fusion).
    pub(crate) fn rank_fused(
        &self,
        query: &SearchQuery,
        by_meaning: Option<SliceScores>,
        fusion_rank: u64,
    ) -> Vec<RankedSlice> {
        let by_words = self.rank(query);
        let Some(by_meaning) = by_meaning else { return by_words };
        let mut sums: HashMap<u32, f32> = HashMap::new();
        for ranking in [by_words, self.rank_by(&by_meaning)] {
            let found = ranking.into_iter().filter(|(_, score)| *score > 0.0);
            for (rank, (slice, _)) in found.enumerate() {
                *sums.entry(slice).or_default() += 1.0 / (fusion_rank as f32 + rank as f32 + 1.0);
            }
        }
        let mut ranked: Vec<RankedSlice> = sums.into_iter().collect();
        sort_best_first(&mut ranked);
        ranked
    }

    /// Ranks the slices by scores.
    fn rank_by(&self, scores: &SliceScores) -> Vec<RankedSlice> {
        let best = self.best_entries(scores);
        let mut by_segment: HashMap<u32, (u32, f32)> = HashMap::new();
        for (entry, score) in &best {
            let Some(facts) = self.entries.get(*entry as usize) else { continue };
            let best = by_segment.entry(facts.segment).or_insert((*entry, 0.0));
            best.1 = best.1.max(*score);
        }
        let mut ranked = Vec::new();
        for (entry, segment_score) in by_segment.into_values() {
            for seq in self.segment_around(entry) {
                self.rank_entry(seq, segment_score, scores, &mut ranked);
            }
        }
        sort_best_first(&mut ranked);
        ranked
    }

    fn rank_entry(
        &self,
        seq: u32,
        segment_score: f32,
        scores: &SliceScores,
        ranked: &mut Vec<RankedSlice>,
    ) {
        let Some(facts) = self.entries.get(seq as usize) else { return };
        let neighbours = [seq.checked_sub(1), Some(seq + 1)].into_iter().flatten();
        let beside = neighbours.filter(|beside| self.segment_of(*beside) == Some(facts.segment));
        let neighbour_score =
            beside.map(|beside| self.entry_score(beside, scores)).fold(0.0, f32::max);
        let around = NEIGHBOUR_SHARE * neighbour_score + SEGMENT_SHARE * segment_score;
        let weight = if facts.is_user { USER_WEIGHT } else { 1.0 };
        for number in facts.slices() {
            let Some(slice) = self.slices.get(number as usize) else { continue };
            if slice.range().is_empty() {
                continue;
            }
            let score = (scores.get(number) + around) * weight;
            // The root: proportional to the size would only find the shortest slices.
            ranked.push((number, score / (slice.tokens as f32 + OVERHEAD_TOKENS).sqrt()));
        }
    }

    /// The entries with the best slices.
    fn best_entries(&self, scores: &SliceScores) -> Vec<(u32, f32)> {
        let mut best: HashMap<u32, f32> = HashMap::new();
        let mut hits: Vec<u32> = scores.hits().to_vec();
        // Several slices of an entry may be among the best; four per entry are enough.
        let most = BEST_ENTRIES * 4;
        if hits.len() > most {
            hits.select_nth_unstable_by(most, |left, right| {
                scores.get(*right).total_cmp(&scores.get(*left)).then(right.cmp(left))
            });
            hits.truncate(most);
        }
        for number in hits {
            let Some(slice) = self.slices.get(number as usize) else { continue };
            let score = best.entry(slice.entry).or_default();
            *score = score.max(scores.get(number));
        }
        let mut best: Vec<(u32, f32)> = best.into_iter().collect();
        best.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
        best.truncate(BEST_ENTRIES);
        best
    }

    fn entry_score(&self, seq: u32, scores: &SliceScores) -> f32 {
        let facts = self.entries.get(seq as usize);
        facts.map_or(0.0, |facts| facts.slices().map(|slice| scores.get(slice)).fold(0.0, f32::max))
    }

    fn segment_of(&self, seq: u32) -> Option<u32> {
        self.entries.get(seq as usize).map(|facts| facts.segment)
    }

    /// The positions of an entry's segment. Segments are short and contiguous.
    fn segment_around(&self, seq: u32) -> std::ops::Range<u32> {
        let Some(segment) = self.segment_of(seq) else { return 0..0 };
        let is_same = |seq: &u32| self.segment_of(*seq) == Some(segment);
        let start = (0..seq).rev().take_while(is_same).last().unwrap_or(seq);
        let end = (seq..).take_while(is_same).last().unwrap_or(seq) + 1;
        start..end
    }
}
