//! What differs between operating systems: files, processes, signals and terminals, with one interface for Unix and Windows.
//!
//! Where the systems differ in more than a name, a subject has a file for each, which defines the same functions. The
//! sandbox of engines is not here: only Unix has one.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod files;
pub mod processes;
pub mod signals;
pub mod standard_input;
pub mod terminal;
