//! Keys in falling order, sorted only as far as they are read.

/// Keys that are sorted before the first one is read.
const FIRST_KEYS: usize = 1_024;

/// An iterator over keys, greatest first.
// Who reads the best few hundred of tens of thousands does not wait for the order of the others.
#[derive(Debug, Default)]
pub(crate) struct BestFirst {
    /// The complements of the keys, which rise where the keys fall.
    keys: Vec<u64>,
    /// End of the sorted part.
    sorted: usize,
    at: usize,
}

impl BestFirst {
    pub(crate) fn new(keys: impl Iterator<Item = u64>) -> BestFirst {
        let mut complements = Vec::with_capacity(keys.size_hint().0);
        // `collect` asks for one key at a time, which of nested iterators takes several times as long.
        keys.for_each(|key| complements.push(!key));
        BestFirst { keys: complements, sorted: 0, at: 0 }
    }

    /// The key at a place of the order.
    pub(crate) fn get(&mut self, at: usize) -> Option<u64> {
        while at >= self.sorted && self.sorted < self.keys.len() {
            self.sort_more();
        }
        self.keys.get(at).map(|key| !key)
    }

    /// Sorts as many further keys as are sorted already.
    fn sort_more(&mut self) {
        let Some(rest) = self.keys.get_mut(self.sorted..) else { return };
        let count = self.sorted.max(FIRST_KEYS);
        let best = if rest.len() > count { rest.select_nth_unstable(count).0 } else { rest };
        best.sort_unstable();
        self.sorted += best.len();
    }
}

impl Iterator for BestFirst {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let key = self.get(self.at)?;
        self.at += 1;
        Some(key)
    }
}

/// A number whose order is the total order of `score`; of equal scores the one with the greater `number` is greater.
pub(crate) fn key_of(score: f32, number: u32) -> u64 {
    let bits = score.to_bits();
    let order = if score.is_sign_negative() { !bits } else { bits | 1 << 31 };
    u64::from(order) << 32 | u64::from(number)
}

/// The score in a key.
pub(crate) fn score_of(key: u64) -> f32 {
    let order = (key >> 32) as u32;
    let is_positive = order >> 31 == 1;
    f32::from_bits(if is_positive { order & !(1 << 31) } else { !order })
}

/// The number in a key.
pub(crate) fn number_of(key: u64) -> u32 {
    key as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_keys_come_in_falling_order(mut keys in prop::collection::vec(0u64..500, 0..2_000)) {
            let read: Vec<u64> = BestFirst::new(keys.iter().copied()).collect();
            keys.sort_unstable_by(|left, right| right.cmp(left));
            prop_assert_eq!(read, keys);
        }

        #[test]
        fn keys_have_the_order_of_their_scores(one: (f32, u32), other: (f32, u32)) {
            let by_score = one.0.total_cmp(&other.0).then(one.1.cmp(&other.1));
            prop_assert_eq!(key_of(one.0, one.1).cmp(&key_of(other.0, other.1)), by_score);
            prop_assert_eq!(number_of(key_of(one.0, one.1)), one.1);
            prop_assert_eq!(score_of(key_of(one.0, one.1)).to_bits(), one.0.to_bits());
        }
    }
}
