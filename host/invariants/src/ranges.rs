//! A sorted set of positions, stored as ranges.

use std::ops::Range;

/// A set of positions as ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet(Vec<Range<u64>>);

impl RangeSet {
    /// The positions of any ranges, in any order.
    pub(super) fn from_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> RangeSet {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut().filter(|last| range.start <= last.end) {
                // A range may lie inside of the one before it.
                Some(last) => last.end = last.end.max(range.end),
                None => merged.push(range),
            }
        }
        RangeSet(merged)
    }

    /// The ranges in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().cloned()
    }

    /// The union of two sets.
    pub(super) fn union(&self, other: &RangeSet) -> RangeSet {
        RangeSet::from_ranges(self.iter().chain(other.iter()))
    }

    /// Whether a position is in the set.
    pub(super) fn contains(&self, position: u64) -> bool {
        let after = self.0.partition_point(|range| range.end <= position);
        self.0.get(after).is_some_and(|range| range.contains(&position))
    }

    /// The parts of `range` that are not in the set, in ascending order.
    pub(super) fn gaps_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = range.start;
        let first = self.0.partition_point(|span| span.end <= range.start);
        for span in self.0.iter().skip(first).take_while(|span| span.start < range.end) {
            if from < span.start {
                gaps.push(from..span.start);
            }
            from = span.end;
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set(pairs in prop::collection::vec((0..30_u64, 0..6_u64), 0..8), at in 0..30_u64) {
            let ranges: Vec<_> = pairs.iter().map(|(start, len)| *start..start + len).collect();
            let set: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            let spans = RangeSet::from_ranges(ranges);
            prop_assert_eq!(spans.iter().flatten().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(spans.contains(at), set.contains(&at));
            let gaps: Vec<u64> = spans.gaps_in(at..at + 9).into_iter().flatten().collect();
            let expected: Vec<u64> = (at..at + 9).filter(|position| !set.contains(position)).collect();
            prop_assert_eq!(gaps, expected);
        }
    }
}
