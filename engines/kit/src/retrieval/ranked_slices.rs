//! Ranked slices, sorted only as far as they are read.

use std::cell::RefCell;

use crate::best_first::{BestFirst, key_of, number_of, score_of};

/// Slices with their scores, best first; of equal ones the newest, because later words count.
#[derive(Debug, Default)]
pub struct RankedSlices {
    keys: RefCell<BestFirst>,
}

impl RankedSlices {
    /// Ranks slices, each with its score.
    pub fn new(slices: impl IntoIterator<Item = (u32, f32)>) -> RankedSlices {
        let keys = slices.into_iter().map(|(number, score)| key_of(score, number));
        RankedSlices { keys: RefCell::new(BestFirst::new(keys)) }
    }

    /// The slices, best first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        let keys = (0..).map_while(|at| self.keys.borrow_mut().get(at));
        keys.map(|key| (number_of(key), score_of(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_slice_comes_first_and_of_equal_ones_the_newest() {
        let slices = [(1, 0.5), (2, -1.0), (3, 0.5), (4, 2.0), (5, 0.0), (6, -0.5)];
        let ranked = RankedSlices::new(slices);
        let expected = [(4, 2.0), (3, 0.5), (1, 0.5), (5, 0.0), (6, -0.5), (2, -1.0)];
        assert_eq!(ranked.iter().collect::<Vec<_>>(), expected);
        assert_eq!(ranked.iter().collect::<Vec<_>>(), expected, "and again");
    }
}
