//! The compactions of a branch, by their number.

use std::fmt;

use serde::Serialize;

use super::HistoryError;
use ctxhost_session::{Record, RecordKind, Session};

/// A compaction of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchCompaction {
    /// Which of the branch it is, from 1.
    pub number: usize,
    /// The id of its record.
    pub id: String,
    /// The engine and its version; `None` where another program compacted.
    pub engine: Option<String>,
    /// Why it was wanted; empty where the record does not say.
    pub trigger: String,
    /// When, as ISO 8601.
    pub time: String,
    /// The summary, bare.
    pub summary: String,
    /// What the live transcript cost before and after, in tokens; 0 where the record does not say.
    pub tokens: (u64, u64),
}

/// The compactions of the branch, oldest first.
pub fn compactions(session: &Session) -> Vec<BranchCompaction> {
    let branch = session.branch().into_iter();
    let records = branch.filter(|record| *record.kind() == RecordKind::Compaction);
    records.zip(1..).map(|(record, number)| BranchCompaction::from_record(record, number)).collect()
}

/// The compaction with this number, or the newest. `-1` is the newest too, `-2` the one before.
///
/// # Errors
///
/// [`HistoryError`] where there is none, or not so many.
pub fn find_compaction(
    session: &Session,
    number: Option<i64>,
) -> Result<BranchCompaction, HistoryError> {
    let mut all = compactions(session);
    if all.is_empty() {
        return Err(HistoryError::NoCompaction);
    }
    let number = number.unwrap_or(-1);
    let at = match usize::try_from(number) {
        Ok(number) => number.checked_sub(1),
        Err(_) => {
            usize::try_from(number.unsigned_abs()).ok().and_then(|n| all.len().checked_sub(n))
        }
    };
    match at.filter(|at| *at < all.len()) {
        Some(at) => Ok(all.swap_remove(at)),
        None => {
            let there = all.iter().map(BranchCompaction::to_string).collect();
            Err(HistoryError::UnknownCompaction { number, there })
        }
    }
}

impl BranchCompaction {
    fn from_record(record: &Record, number: usize) -> BranchCompaction {
        let made = record.compaction().unwrap_or_default();
        let engine = (!made.engine.is_empty())
            .then(|| format!("{} {}", made.engine, made.engine_version).trim().to_owned());
        BranchCompaction {
            number,
            id: record.id().to_owned(),
            engine,
            trigger: made.trigger,
            time: record.iso_time(),
            summary: made.summary,
            tokens: (made.tokens_before, made.tokens_after.unwrap_or_default()),
        }
    }

    /// Who made it, why and when.
    pub fn provenance(&self) -> String {
        let engine = self.engine.as_deref().unwrap_or("another program");
        let trigger = if self.trigger.is_empty() { "" } else { ", " };
        format!("{engine}{trigger}{}, {}", self.trigger, self.time)
    }
}

impl fmt::Display for BranchCompaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} ({})", self.number, self.provenance())
    }
}
