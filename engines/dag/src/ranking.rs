//! Ranks slices and leaves for a prompt.
//!
//! A slice scores by its own terms, by its best neighbour and by the best of its leaf, because an
//! answer is often next to the words of the question. The score is divided by the root of the size,
//! so that short slices leave room for more. User messages count twice, because only the user can
//! repeat them.

use std::collections::{BTreeMap, HashMap, HashSet};

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::cuts::trailing_frame;
use ctxhost_engine_kit::search::{SliceScores, for_each_term, sort_best_first};

use crate::session::{DagSession, NONE};

/// Weights of the best neighbour and the best of the leaf.
const NEIGHBOUR_SHARE: f32 = 0.5;
const LEAF_SHARE: f32 = 0.5;
/// Weight of user messages.
const USER_WEIGHT: f32 = 2.0;
/// Fixed cost of a slice besides its tokens.
const OVERHEAD_TOKENS: f32 = 8.0;
/// Slices whose leaves are ranked.
// Far more than any budget holds.
const BEST_SLICES: usize = 768;
/// Weight of terms from the running calls, and the bytes of them that are read.
const CONTEXT_WEIGHT: f32 = 0.3;
const CONTEXT_BYTES: usize = 1_000;

/// What a prompt finds.
#[derive(Debug, Default)]
pub(crate) struct PromptRanking {
    /// Slice numbers with their scores per token, best first.
    pub(crate) slices: Vec<(u32, f32)>,
    /// The best score of each leaf.
    pub(crate) leaves: BTreeMap<usize, f32>,
}

impl DagSession {
    /// Ranks for a prompt, and with less weight for the running calls. Without a prompt the newest
    /// user message counts.
    pub(crate) fn rank_prompt(&self, transcript: &Transcript, prompt: &str) -> PromptRanking {
        let newest = self.newest_user.and_then(|seq| transcript.get(seq));
        let words = newest.map_or("", |entry| entry.text());
        let prompt = if prompt.trim().is_empty() { words } else { prompt };
        let live = trailing_frame(transcript);
        let running = transcript.range(live..transcript.len() as u64);
        let mut context = String::new();
        for call in running.flat_map(|entry| entry.tool_calls()) {
            context.push_str(&call.arguments);
            context.push(' ');
        }
        // The newest calls may write whole files.
        context.truncate(context.floor_char_boundary(CONTEXT_BYTES));
        self.rank(prompt, &context)
    }

    /// Ranks for a text and, with less weight, its context.
    pub(crate) fn rank(&self, text: &str, context: &str) -> PromptRanking {
        let scores = self.index.search(&weighted_terms(text, context));
        let mut leaves: HashMap<u32, f32> = HashMap::new();
        for number in best_hits(&scores) {
            let Some(slice) = self.slices.get(number as usize) else { continue };
            let best = leaves.entry(slice.leaf).or_default();
            *best = best.max(scores.get(number));
        }
        let mut ranked = Vec::new();
        for (leaf, score) in &leaves {
            let entries = self.leaf_entries.get(*leaf as usize).cloned().unwrap_or_default();
            entries.for_each(|seq| self.rank_entry(seq, *leaf, *score, &scores, &mut ranked));
        }
        sort_best_first(&mut ranked);
        let leaves = leaves.into_iter().filter(|(leaf, _)| *leaf != NONE);
        let leaves = leaves.map(|(leaf, score)| (leaf as usize, score)).collect();
        PromptRanking { slices: ranked, leaves }
    }

    fn rank_entry(
        &self,
        seq: u32,
        leaf: u32,
        leaf_score: f32,
        scores: &SliceScores,
        ranked: &mut Vec<(u32, f32)>,
    ) {
        let Some(row) = self.entries.get(seq as usize).filter(|row| row.leaf == leaf) else {
            return;
        };
        let beside = [seq.checked_sub(1), seq.checked_add(1)].into_iter().flatten();
        let neighbour_score =
            beside.map(|beside| self.score_in_leaf(beside, leaf, scores)).fold(0.0, f32::max);
        let around = NEIGHBOUR_SHARE * neighbour_score + LEAF_SHARE * leaf_score;
        let weight = if row.is_user { USER_WEIGHT } else { 1.0 };
        for number in row.slices() {
            let Some(slice) = self.slices.get(number as usize) else { continue };
            if slice.range().is_empty() {
                continue;
            }
            let score = (scores.get(number) + around) * weight;
            // The root: proportional to the size would only find the shortest slices.
            ranked.push((number, score / (slice.tokens as f32 + OVERHEAD_TOKENS).sqrt()));
        }
    }

    /// The best score of an entry; 0 outside of the leaf.
    fn score_in_leaf(&self, seq: u32, leaf: u32, scores: &SliceScores) -> f32 {
        let row = self.entries.get(seq as usize).filter(|row| row.leaf == leaf);
        row.map_or(0.0, |row| row.slices().map(|slice| scores.get(slice)).fold(0.0, f32::max))
    }
}

/// The terms of a text, and with less weight those of its context; each once.
fn weighted_terms(text: &str, context: &str) -> Vec<(u64, f32)> {
    let mut seen = HashSet::new();
    let mut terms = Vec::new();
    for (text, weight) in [(text, 1.0), (context, CONTEXT_WEIGHT)] {
        for_each_term(text, |term| {
            if seen.insert(term) {
                terms.push((term, weight));
            }
        });
    }
    terms
}

fn best_hits(scores: &SliceScores) -> Vec<u32> {
    let mut hits = scores.hits().to_vec();
    if hits.len() > BEST_SLICES {
        hits.select_nth_unstable_by(BEST_SLICES, |left, right| {
            scores.get(*right).total_cmp(&scores.get(*left)).then(right.cmp(left))
        });
        hits.truncate(BEST_SLICES);
    }
    hits
}
