//! Search in a conversation without a model: terms, slices of a text, and an index of them.

mod index;
mod slices;
mod terms;

pub use index::{SliceScores, TermIndex, sort_best_first};
pub use slices::split_into_slices;
pub use terms::{distinct_terms, for_each_term};
