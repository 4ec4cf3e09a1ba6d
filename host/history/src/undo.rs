//! A compaction taken back by its number, with the digests that show what came of it.

use ctxhost_engine_api::transcript::log::TranscriptLog;

use super::compactions::{BranchCompaction, compactions, find_compaction};
use super::error::HistoryError;
use ctxhost_session::{Session, transcript_digest};

/// What taking a compaction back came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoReport {
    /// The compaction that was asked for.
    pub compaction: BranchCompaction,
    /// The newer ones that went with it, because they were made of what it had left.
    pub newer: Vec<BranchCompaction>,
    /// The live transcript just before that compaction.
    pub before: TranscriptMeasure,
    /// The live transcript now: that, and what was said since.
    pub now: TranscriptMeasure,
}

/// A live transcript in three numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptMeasure {
    /// What it says: see [`transcript_digest`](ctxhost_session::digest).
    pub digest: String,
    /// How many entries.
    pub entries: usize,
    /// What they cost, in tokens without margin.
    pub tokens: u64,
}

/// Takes the compaction with this number back, or the newest, and every newer one with it. Numbers are
/// those of [`compacted`].
///
/// # Errors
///
/// [`HistoryError`] where there is no such compaction or the session cannot be written; it stands where
/// it stood then.
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
    /// The measure of a live transcript.
    pub fn from_log(log: &TranscriptLog) -> TranscriptMeasure {
        TranscriptMeasure {
            digest: transcript_digest(&log.snapshot()),
            entries: log.len(),
            tokens: log.total_tokens(),
        }
    }
}
