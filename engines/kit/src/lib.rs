//! Shared building blocks of the bundled engines: cuts, replacements, summaries and text tools.

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

pub mod budget;
pub mod budget_states;
pub mod circuit_breaker;
pub mod cursor;
pub mod session_map;
pub mod settings;
pub mod status;
pub mod store;

pub mod cuts;
pub mod exchange;
pub mod history_fold;
pub mod sliding_window;
pub mod tail;

pub mod caps;
pub mod live_round;
pub mod masks;
pub mod previews;
pub mod replacement;
pub mod shortening;

pub mod notes;
pub mod prompt;
pub mod summariser;
pub mod summary;

pub mod attachments;
pub mod calls;
pub mod files;
pub mod ledger;
pub mod name_ledger;
pub mod subagents;

mod best_first;
pub mod excerpt;
pub mod retrieval;

pub mod antecedent;
pub mod chunks;
pub mod dialogue;
pub mod request_excerpt;
pub mod requests;
pub mod rules;
mod wordings;
