//! What the texts of messages contain: identifiers, secrets, the user's own words, terms to search for. Shared by host and engines.

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

pub mod identifiers;
pub mod injected_text;
pub mod own_text;
pub mod redact;
pub mod search;

pub mod abbreviations;
pub mod fingerprint;
pub mod hash;
pub mod truncate;
