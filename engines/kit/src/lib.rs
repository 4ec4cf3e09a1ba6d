//! Being built.

pub mod turns;
