//! Divides a long history into chunks for a summariser that sees only a part of it at a time.
//!
//! The unit is a group of one frame, so that a call and its results are never separated.

use std::ops::Range;

use ctxhost_engine_api::Transcript;

/// A frame of the transcript and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageGroup {
    /// Positions of its entries.
    pub range: Range<u64>,
    /// Size in tokens, without margin.
    pub tokens: u64,
}

/// Limits of chunking.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLimits {
    /// Share of the window per chunk if messages are small.
    pub base_ratio: f64,
    /// Lower bound of the share.
    pub min_ratio: f64,
    /// Factor applied to estimates before they are compared with a window.
    pub margin: f64,
    /// Tokens subtracted from each chunk for instructions and the previous summary.
    pub overhead_tokens: u64,
    /// A group above this share of the window is not summarised.
    pub oversized_share: f64,
}

/// Chunks shrink if the average message is above this share of the window.
const LARGE_MESSAGE_SHARE: f64 = 0.1;

/// Splits ranges into groups, in order.
pub fn message_groups(transcript: &Transcript, ranges: &[Range<u64>]) -> Vec<MessageGroup> {
    let mut groups = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = transcript.cut_at_or_after(start + 1).min(range.end);
            groups.push(MessageGroup { range: start..end, tokens: transcript.tokens(start..end) });
            start = end;
        }
    }
    groups
}

/// Size of all groups, in tokens.
pub fn total_tokens(groups: &[MessageGroup]) -> u64 {
    groups.iter().map(|group| group.tokens).sum()
}

/// Number of entries in all groups.
pub fn count_entries(groups: &[MessageGroup]) -> u64 {
    groups.iter().map(|group| group.range.end - group.range.start).sum()
}

impl ChunkLimits {
    /// Share of the window for one chunk; smaller if messages are large on average.
    pub fn ratio(&self, groups: &[MessageGroup], window_tokens: u64) -> f64 {
        let messages = count_entries(groups);
        if messages == 0 || window_tokens == 0 {
            return self.base_ratio;
        }
        let average = total_tokens(groups) as f64 / messages as f64;
        let share = average * self.margin / window_tokens as f64;
        if share <= LARGE_MESSAGE_SHARE {
            return self.base_ratio;
        }
        // The larger the average message, the fewer fit: leave room for one that exceeds the
        // average.
        let reduction = (share * 2.0).min(self.base_ratio - self.min_ratio);
        (self.base_ratio - reduction).max(self.min_ratio)
    }

    /// Maximum size of a chunk for a window, in tokens.
    pub fn max_chunk_tokens(&self, groups: &[MessageGroup], window_tokens: u64) -> u64 {
        let share = (window_tokens as f64 * self.ratio(groups, window_tokens)) as u64;
        share.saturating_sub(self.overhead_tokens).max(1)
    }

    /// Packs groups into chunks of at most `max_chunk_tokens`, margin included. A larger group is a
    /// chunk of its own.
    pub fn chunks<'a>(
        &self,
        groups: &'a [MessageGroup],
        max_chunk_tokens: u64,
    ) -> Vec<&'a [MessageGroup]> {
        fill(groups, (max_chunk_tokens as f64 / self.margin) as u64, usize::MAX)
    }

    /// Whether a group is too large to be summarised.
    pub fn is_oversized(&self, group: &MessageGroup, window_tokens: u64) -> bool {
        group.tokens as f64 * self.margin > window_tokens as f64 * self.oversized_share
    }
}

/// Splits groups into at most `parts` parts of similar size.
pub fn split_parts(groups: &[MessageGroup], parts: usize) -> Vec<&[MessageGroup]> {
    // A single group cannot be divided, because it holds a call with its results.
    if parts < 2 || groups.len() < 2 {
        return if groups.is_empty() { Vec::new() } else { vec![groups] };
    }
    fill(groups, total_tokens(groups) / parts as u64, parts)
}

/// Counts the oldest groups to drop so that the rest takes at most `budget_tokens`. Stops if the
/// rest cannot be split.
pub fn prune_oldest(groups: &[MessageGroup], budget_tokens: u64, parts: usize) -> PruneOutcome {
    let mut pruned = PruneOutcome::default();
    loop {
        let rest = groups.get(pruned.groups..).unwrap_or(&[]);
        if total_tokens(rest) <= budget_tokens {
            return pruned;
        }
        let split = split_parts(rest, parts);
        let Some(first) = split.first().filter(|_| split.len() > 1) else { return pruned };
        pruned.groups += first.len();
        pruned.steps += 1;
    }
}

/// Number of oldest groups that hold one of `parts` equal parts of the tokens.
pub fn oldest_part(groups: &[MessageGroup], parts: u64) -> usize {
    // At least one token, or a history of empty messages would never shrink.
    let share_tokens = (total_tokens(groups) / parts).max(1);
    let mut gone_tokens = 0;
    let is_enough = |group: &MessageGroup| {
        gone_tokens += group.tokens;
        gone_tokens >= share_tokens
    };
    groups.iter().position(is_enough).map_or(groups.len(), |at| at + 1)
}

/// Result of [`prune_oldest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    /// Number of groups to drop, oldest first.
    pub groups: usize,
    /// Number of steps.
    pub steps: usize,
}

/// Fills chunks up to `limit_tokens`; the last of `max_chunks` takes the rest.
fn fill(groups: &[MessageGroup], limit_tokens: u64, max_chunks: usize) -> Vec<&[MessageGroup]> {
    let mut chunks = Vec::new();
    let (mut start, mut spent) = (0, 0);
    for (at, group) in groups.iter().enumerate() {
        // The first group of a chunk is added even if it exceeds the limit, so that no group is
        // lost.
        let is_full = at > start && spent + group.tokens > limit_tokens;
        if is_full && chunks.len() + 1 < max_chunks {
            chunks.extend(groups.get(start..at));
            (start, spent) = (at, 0);
        }
        spent += group.tokens;
    }
    chunks.extend(groups.get(start..).filter(|rest| !rest.is_empty()));
    chunks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    const LIMITS: ChunkLimits = ChunkLimits {
        base_ratio: 0.4,
        min_ratio: 0.15,
        margin: 1.2,
        overhead_tokens: 4_096,
        oversized_share: 0.5,
    };

    fn users(tokens: &[u64]) -> Vec<MessageGroup> {
        let group = |(at, tokens): (usize, &u64)| MessageGroup {
            range: at as u64..at as u64 + 1,
            tokens: *tokens,
        };
        tokens.iter().enumerate().map(group).collect()
    }

    fn sizes(chunks: &[&[MessageGroup]]) -> Vec<usize> {
        chunks.iter().map(|chunk| chunk.len()).collect()
    }

    #[test]
    fn case_25_the_ratio_falls_with_large_messages() {
        for (chars, ratio) in [(40_000, 0.4), (80_000, 0.16), (120_000, 0.15), (400_000, 0.15)] {
            let measured = LIMITS.ratio(&users(&[chars / 4, chars / 4]), 200_000);
            assert!((measured - ratio).abs() < 1e-9, "{chars}: {measured}");
        }
        assert_eq!(LIMITS.ratio(&[], 200_000), 0.4);
    }

    #[test]
    fn case_26_chunks_fit_the_limit_with_its_margin() {
        assert_eq!(sizes(&LIMITS.chunks(&users(&[200, 450, 450, 200]), 700)), [1, 1, 1, 1]);
        assert_eq!(sizes(&LIMITS.chunks(&users(&[200, 300, 5_000, 200]), 700)), [2, 1, 1]);
    }

    #[test]
    fn case_27_a_call_and_its_result_stay_together() {
        let mut sample = TranscriptBuilder::new();
        sample.user(&"u".repeat(4_000)).calls(&[("1", "read", &json!({}).to_string())]);
        sample.result("1", "read", &"r".repeat(3_976)).user(&"v".repeat(4_000));
        let transcript = sample.transcript();
        let groups = message_groups(&transcript, &[0..4]);
        assert_eq!(groups[1].range, 1..3);
        assert_eq!(sizes(&LIMITS.chunks(&groups, 1_200)), [1, 1, 1]);
    }

    #[test]
    fn case_28_parts_of_equal_share() {
        let groups = users(&[1_000; 4]);
        for (parts, expected) in [
            (1, vec![4]),
            (2, vec![2, 2]),
            (3, vec![1, 1, 2]),
            (4, vec![1, 1, 1, 1]),
            (9, vec![1, 1, 1, 1]),
        ] {
            assert_eq!(sizes(&split_parts(&groups, parts)), expected, "{parts} parts");
        }
    }

    #[test]
    fn case_30_over_half_of_the_window_is_oversized() {
        let [large, fine] = [100_000, 41_000].map(|tokens| MessageGroup { range: 0..1, tokens });
        assert!(LIMITS.is_oversized(&large, 100_000));
        assert!(!LIMITS.is_oversized(&fine, 100_000));
    }

    #[test]
    fn case_31_the_oldest_parts_go_until_the_share_holds() {
        let groups = users(&[1_000; 4]);
        for (budget, parts, expected) in [
            (1_000, 2, PruneOutcome { groups: 3, steps: 2 }),
            (1_000, 4, PruneOutcome { groups: 3, steps: 3 }),
            (4_000, 2, PruneOutcome::default()),
            (100, 2, PruneOutcome { groups: 3, steps: 2 }),
        ] {
            assert_eq!(prune_oldest(&groups, budget, parts), expected, "{budget} in {parts}");
        }
    }

    #[test]
    fn a_fifth_of_the_tokens_is_whole_groups() {
        let groups = users(&[10, 10, 30, 50]);
        assert_eq!(oldest_part(&groups, 5), 2);
        assert_eq!(oldest_part(&groups[3..], 5), 1);
        assert_eq!(oldest_part(&[], 5), 0);
    }

    #[test]
    fn case_32_a_pair_goes_as_a_whole() {
        let mut sample = TranscriptBuilder::new();
        sample.user("first").calls(&[("1", "read", &json!({}).to_string())]);
        sample.result("1", "read", "text").user("last");
        let groups = message_groups(&sample.transcript(), &[0..4]);
        assert_eq!(prune_oldest(&groups, 1, 2).groups, 2);
        assert_eq!(groups[2].range, 3..4);
    }
}
