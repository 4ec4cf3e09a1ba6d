//! The history of a session: what was said and folded away, found again and brought back.
//!
//! Nothing here removes or changes a record. What is brought back is appended, and a copy is a file of
//! its own.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod bisect;
mod compacted;
mod difference;
mod error;
mod export;
mod fork;
mod redact;
mod restore;
mod spoken;
mod turns;
mod undo;

#[cfg(test)]
mod tests;

pub use bisect::{Fate, Place, Search, bisect};
pub use compacted::{Compacted, compacted, compactions};
pub use difference::{Difference, Inserted, LostAt, RecordPlace, Touched, difference};
pub use error::HistoryError;
pub use export::{Export, export, write_new};
pub use fork::{Until, fork};
pub use redact::{Redactor, Replaced};
pub use restore::{Restoration, Wanted, restoration};
pub use turns::{Turn, TurnRange, turn_of, turns};
pub use undo::{Measure, Undone, undo};
