//! Ranked slices, sorted only as far as they are read.

use std::cell::RefCell;

use crate::best_first::{BestFirst, key_of, number_of, score_of};

/// A slice number and its score per token.
pub type RankedSlice = (u32, f32);

/// Slices with their scores, best first; of equal ones the newest, because later words count.
#[derive(Debug, Default)]
pub struct RankedSlices {
    keys: RefCell<BestFirst>,
}

impl RankedSlices {
    /// Ranks slices by their scores.
    pub fn new(slices: impl IntoIterator<Item = RankedSlice>) -> RankedSlices {
        let keys = slices.into_iter().map(|(number, score)| key_of(score, number));
        RankedSlices { keys: RefCell::new(BestFirst::new(keys)) }
    }

    /// Adds a slice; none is read yet.
    pub(super) fn push(&mut self, number: u32, score: f32) {
        self.keys.get_mut().push(key_of(score, number));
    }

    /// The slices, best first.
    pub fn iter(&self) -> impl Iterator<Item = RankedSlice> {
        let keys = (0..).map_while(|at| self.keys.borrow_mut().get(at));
        keys.map(|key| (number_of(key), score_of(key)))
    }

    /// Number of slices.
    pub fn len(&self) -> usize {
        self.keys.borrow().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        assert_eq!(ranked.len(), 6);
    }
}
