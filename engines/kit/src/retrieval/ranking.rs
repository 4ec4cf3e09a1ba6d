//! Ranks the slices and groups of a session for a query.
//!
//! A slice scores by its own terms, by its best neighbour and by the best of its group, because an
//! answer is often next to the words of the question. The score is divided by the root of the size,
//! so that short slices leave room for more. User messages count twice, because only the user can
//! repeat them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::best_first::{key_of, number_of};
use ctxhost_text::search::SliceScores;

use super::history_index::{EntryRow, HistoryIndex, NO_ENTRY};
use super::query::SearchQuery;
use super::ranked_slices::RankedSlices;

/// Weights of the best neighbour and the best of the group.
const NEIGHBOUR_SHARE: f32 = 0.5;
const GROUP_SHARE: f32 = 0.5;
/// Weight of user messages.
// The model can repeat its own work, but only the user knows what was asked.
const USER_WEIGHT: f32 = 2.0;
/// Fixed cost of a slice besides its tokens.
const OVERHEAD_TOKENS: f32 = 8.0;
/// Entries whose groups are ranked.
// Far more than any budget holds.
const BEST_ENTRIES: usize = 256;

/// What a query finds.
#[derive(Debug, Default)]
pub struct PromptRanking {
    /// Slices of live entries.
    pub slices: RankedSlices,
    /// The best score of each group.
    pub groups: BTreeMap<u32, f32>,
}

impl HistoryIndex {
    /// Ranks the slices for a query.
    pub fn rank(&self, query: &SearchQuery) -> PromptRanking {
        self.rank_by(&self.terms.search(&query.terms))
    }

    /// Ranks the slices by scores.
    pub fn rank_by(&self, scores: &SliceScores) -> PromptRanking {
        let mut groups: BTreeMap<u32, f32> = BTreeMap::new();
        for ((_, group), score) in self.best_entries(scores) {
            let best = groups.entry(group).or_default();
            *best = best.max(score);
        }
        let slices =
            groups.iter().flat_map(|(group, score)| self.rank_group((*group, *score), scores));
        PromptRanking { slices: RankedSlices::new(slices), groups }
    }

    /// The slices of a group, with their scores.
    fn rank_group(
        &self,
        (group, group_score): (u32, f32),
        scores: &SliceScores,
    ) -> impl Iterator<Item = (u32, f32)> {
        let entries = self.groups().get(group as usize).cloned().unwrap_or_default();
        let rows = self.entries.get(entries.start as usize..entries.end as usize);
        let rows = rows.unwrap_or_default();
        // The entries of a group may enclose those of another.
        let best_of =
            move |row: &EntryRow| if row.group == group { best_score(row, scores) } else { 0.0 };
        let best: Vec<f32> = rows.iter().map(best_of).collect();
        let beside = move |at: usize| {
            let beside = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten();
            beside.filter_map(|at| best.get(at).copied()).fold(0.0, f32::max)
        };
        let own = rows.iter().enumerate().filter(move |(_, row)| row.group == group);
        own.flat_map(move |(at, row)| {
            let around = NEIGHBOUR_SHARE * beside(at) + GROUP_SHARE * group_score;
            let weight = if row.is_user { USER_WEIGHT } else { 1.0 };
            row.slices().filter_map(move |number| {
                let slice = self.slices.get(number as usize)?;
                let score = (scores.get(number) + around) * weight;
                // The root: proportional to the size would only find the shortest slices.
                let score = score / (f32::from(slice.tokens) + OVERHEAD_TOKENS).sqrt();
                (!slice.range().is_empty()).then_some((number, score))
            })
        })
    }

    /// The entries with the best slices, each with its group. A text without an entry counts as one.
    fn best_entries(&self, scores: &SliceScores) -> Vec<((u32, u32), f32)> {
        let mut best: HashMap<(u32, u32), f32> = HashMap::new();
        let mut hits = Vec::new();
        scores.hits().for_each(|(slice, score)| hits.push(key_of(score, slice)));
        // Several slices of an entry may be among the best; four per entry are enough.
        let most = BEST_ENTRIES * 4;
        if hits.len() > most {
            hits.select_nth_unstable_by_key(most, |key| Reverse(*key));
            hits.truncate(most);
        }
        for number in hits.into_iter().map(number_of) {
            let Some(slice) = self.slices.get(number as usize) else { continue };
            if slice.group == NO_ENTRY {
                continue;
            }
            let score = best.entry((slice.entry, slice.group)).or_default();
            *score = score.max(scores.get(number));
        }
        let mut best: Vec<((u32, u32), f32)> = best.into_iter().collect();
        best.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
        best.truncate(BEST_ENTRIES);
        best
    }
}

/// The best score of an entry's slices.
fn best_score(row: &EntryRow, scores: &SliceScores) -> f32 {
    row.slices().map(|slice| scores.get(slice)).fold(0.0, f32::max)
}
