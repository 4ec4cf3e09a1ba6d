//! Search in a conversation without a model: terms, slices of a text, and an index of them.

mod index;
mod slices;
mod terms;

pub use index::{SliceScores, TermIndex};
pub use slices::split_into_slices;
pub use terms::{distinct_terms, for_each_term};
