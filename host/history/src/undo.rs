//! A compaction taken back by its number, with the digests that show what came of it.

use ctxhost_engine_api::transcript::log::TranscriptLog;

use super::compacted::{Compacted, compacted, compactions};
use super::error::HistoryError;
use ctxhost_session::{Session, digest};

/// What taking a compaction back came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The compaction that was asked for.
    pub compaction: Compacted,
    /// The newer ones that went with it, because they were made of what it had left.
    pub newer: Vec<Compacted>,
    /// The live transcript just before that compaction.
    pub before: Measure,
    /// The live transcript now: that, and what was said since.
    pub now: Measure,
}

/// A live transcript in three numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// What it says: see [`digest`](ctxhost_session::digest).
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
pub fn undo(session: &mut Session, number: Option<i64>) -> Result<Undone, HistoryError> {
    let compaction = compacted(session, number)?;
    let newer = compactions(session).split_off(compaction.number);
    let before = Measure::of(&session.live_before(&compaction.id)?);
    session.take_back(&compaction.id)?;
    Ok(Undone { compaction, newer, before, now: Measure::of(&session.live(0)) })
}

impl Measure {
    /// The measure of a live transcript.
    pub fn of(log: &TranscriptLog) -> Measure {
        Measure { digest: digest(&log.snapshot()), entries: log.len(), tokens: log.total_tokens() }
    }
}
