//! The walk of a turn under everything at once: random talk, windows and faults, turns that are dropped,
//! words that wait, sessions that share one place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "walk/dropped.rs"]
mod dropped;
#[path = "walk/random.rs"]
mod random;
#[path = "walk/together.rs"]
mod together;
#[path = "walk/waiting.rs"]
mod waiting;
