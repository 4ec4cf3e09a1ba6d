//! Merges the ranking by words with the one by meaning.

use std::collections::HashMap;

use ctxhost_engine_kit::retrieval::{RankedSlices, SearchQuery};
use ctxhost_text::search::SliceScores;

use crate::session::RecallSession;

impl RecallSession {
    /// Ranks the slices by words and, if there are scores for it, by meaning. The score is the sum of
    /// `1 / (fusion_rank + rank)` over both rankings (reciprocal rank fusion).
    pub(crate) fn rank_fused(
        &self,
        query: &SearchQuery,
        by_meaning: Option<SliceScores>,
        fusion_rank: u64,
    ) -> RankedSlices {
        let by_words = self.index.rank(query).slices;
        let Some(by_meaning) = by_meaning else { return by_words };
        let mut sums: HashMap<u32, f32> = HashMap::new();
        for ranking in [by_words, self.index.rank_by(&by_meaning).slices] {
            let found = ranking.iter().take_while(|(_, score)| *score > 0.0);
            for (rank, (slice, _)) in found.enumerate() {
                *sums.entry(slice).or_default() += 1.0 / (fusion_rank as f32 + rank as f32 + 1.0);
            }
        }
        RankedSlices::new(sums)
    }
}
