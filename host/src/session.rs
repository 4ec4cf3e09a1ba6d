//! Sessions: a transcript on disk.

pub mod recording;
