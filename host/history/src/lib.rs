//! History of a session: finds and restores compacted content, forks and exports branches.
//!
//! No function removes or changes a record. Restored content is appended, copies are new files.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod bisect;
mod compactions;
mod diff;
mod entry_text;
mod error;
mod export;
mod fork;
mod loss;
mod redact;
mod restore;
mod turns;
mod undo;

#[cfg(test)]
mod tests;

pub use bisect::{BisectResult, TextFate, TextLocation, bisect};
pub use compactions::{BranchCompaction, compactions, find_compaction, has_time, is_rollback};
pub use diff::{
    AlteredEntry, CompactionDiff, InsertedMessage, LineNumbers, LostText, RecordLocation,
    diff_compaction,
};
pub use error::HistoryError;
pub use export::{ExportCounts, export_branch, export_markdown, write_new};
pub use fork::{ForkPoint, fork_session};
pub use loss::{CompactionLoss, SessionLoss, history_before, measure_loss};
pub use redact::{RedactionCounts, SessionRedactor};
pub use restore::{RestoreRequest, RestoredMessage, build_restoration};
pub use turns::{BranchTurn, TurnRange, turn_of, turns};
pub use undo::{TranscriptMeasure, UndoReport, undo_compaction};
