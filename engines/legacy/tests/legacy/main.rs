//! Integration tests of the engine through the border, on a scripted host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::single_range_in_vec_init
)]

mod fixtures;

mod appendix;
mod broken_store;
mod compaction;
mod cuts;
mod documented;
mod layers;
mod parts;
mod persistence;
mod properties;
mod recorded;
mod room;
mod spilling;
mod summariser;
mod tokens;
