//! What bundled engines share: cuts that separate no call from its result, summaries without a
//! model, and the small words both are made of.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::single_range_in_vec_init
    )
)]

pub mod cuts;
pub mod summary;
pub mod turns;

pub mod chunks;
pub mod dialogue;
pub mod files;
pub mod identifiers;
pub mod redact;
pub mod seed;
pub mod text;

pub mod settings;
