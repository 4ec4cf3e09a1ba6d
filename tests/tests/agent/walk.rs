//! The walk of a turn under everything at once: random talk, windows and faults, turns that are dropped,
//! words that wait, sessions that share one place.

mod dropped;
mod random;
mod together;
mod waiting;
