//! Undoes a compaction by number and reports digests of the live transcript.

use ctxhost_engine_api::transcript::log::TranscriptLog;

use super::compactions::{BranchCompaction, compactions, find_compaction};
use super::error::HistoryError;
use ctxhost_session::{Session, transcript_digest};

/// The result of an undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoReport {
    /// The requested compaction.
    pub compaction: BranchCompaction,
    /// Newer compactions that were undone with it, because they are based on its result.
    pub newer: Vec<BranchCompaction>,
    /// The live transcript before that compaction.
    pub before: TranscriptMeasure,
    /// The live transcript now: that one, followed by later entries.
    pub now: TranscriptMeasure,
}

/// Digest and size of a live transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptMeasure {
    /// Its [digest](transcript_digest).
    pub digest: String,
    /// Number of entries.
    pub entries: usize,
    /// Their size, in tokens without margin.
    pub tokens: u64,
}

/// Undoes the compaction with this number, by default the newest, and all newer ones. Numbers are those of
/// [`find_compaction`].
///
/// # Errors
///
/// [`HistoryError`] if there is no such compaction or the session cannot be written; the session is unchanged
/// then.
pub fn undo_compaction(
    session: &mut Session,
    number: Option<i64>,
) -> Result<UndoReport, HistoryError> {
    let compaction = find_compaction(session, number)?;
    let newer = compactions(session).split_off(compaction.number);
    let before = TranscriptMeasure::from_log(&session.live_before(&compaction.id)?);
    session.undo_compaction_of(&compaction.id)?;
    Ok(UndoReport { compaction, newer, before, now: TranscriptMeasure::from_log(&session.live(0)) })
}

impl TranscriptMeasure {
    /// Measures a live transcript.
    pub fn from_log(log: &TranscriptLog) -> TranscriptMeasure {
        TranscriptMeasure {
            digest: transcript_digest(&log.snapshot()),
            entries: log.len(),
            tokens: log.total_tokens(),
        }
    }
}
