//! The walk of a recorded session through an engine.

pub mod report;
