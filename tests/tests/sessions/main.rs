//! Sessions on disk and in stores: nothing is lost, and replays are the same at every run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crashtest;
mod media;
mod replay;
mod store;
