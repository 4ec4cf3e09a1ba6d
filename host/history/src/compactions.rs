//! Lists the compactions of a branch by number.

use std::fmt;

use serde::Serialize;

use super::HistoryError;
use ctxhost_session::{Record, RecordKind, RecordedCompaction, Session};

/// The trigger of an imported record that is not a compaction: the user took a request back.
const ROLLBACK: &str = "rollback";
/// The trigger of an imported compaction that cleared results of tools only.
pub(super) const PRUNE: &str = "prune";

/// A compaction of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchCompaction {
    /// Its number on the branch, from 1.
    pub number: usize,
    /// The id of its record.
    pub id: String,
    /// The engine and its version; `None` for a compaction by another program.
    pub engine: Option<String>,
    /// Its trigger; empty if unknown.
    pub trigger: String,
    /// Its time, as ISO 8601; empty if unknown.
    pub time: String,
    /// The summary without its frame.
    pub summary: String,
    /// Tokens of the live transcript before and after; 0 if unknown.
    pub tokens: (u64, u64),
}

/// The compactions of the branch, oldest first.
pub fn compactions(session: &Session) -> Vec<BranchCompaction> {
    let branch = session.branch().into_iter();
    let records = branch.filter(|record| *record.kind() == RecordKind::Compaction);
    records.zip(1..).map(|(record, number)| BranchCompaction::from_record(record, number)).collect()
}

/// Whether the time of a record is known. Those of a recording without times begin at 0.
pub fn has_time(record: &Record) -> bool {
    const A_YEAR_MS: i64 = 365 * 24 * 3_600 * 1_000;
    record.timestamp_ms() > A_YEAR_MS
}

/// Whether a record of an import is not a compaction: the user took back a request that was not answered.
pub fn is_rollback(compaction: &RecordedCompaction) -> bool {
    compaction.trigger == ROLLBACK
}

/// The compaction with this number, by default the newest. Negative numbers count from the end.
///
/// # Errors
///
/// [`HistoryError`] if there is no such compaction.
pub fn find_compaction(
    session: &Session,
    number: Option<i64>,
) -> Result<BranchCompaction, HistoryError> {
    let mut all = compactions(session);
    if all.is_empty() {
        return Err(HistoryError::NoCompaction);
    }
    // The newest is what a user asks about right after it happened.
    let number = number.unwrap_or(-1);
    let at = match usize::try_from(number) {
        Ok(number) => number.checked_sub(1),
        Err(_) => usize::try_from(number.unsigned_abs())
            .ok()
            .and_then(|from_end| all.len().checked_sub(from_end)),
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
        let recorded = record.compaction().unwrap_or_default();
        let engine = (!recorded.engine.is_empty())
            .then(|| format!("{} {}", recorded.engine, recorded.engine_version).trim().to_owned());
        BranchCompaction {
            number,
            id: record.id().to_owned(),
            engine,
            trigger: recorded.trigger,
            time: if has_time(record) { record.iso_time() } else { String::new() },
            summary: recorded.summary,
            // Pi records no count after a compaction; 0 stands for "not recorded".
            tokens: (recorded.tokens_before, recorded.tokens_after.unwrap_or_default()),
        }
    }

    /// Engine, trigger and time, as far as they are known.
    pub fn provenance(&self) -> String {
        let engine = self.engine.as_deref().unwrap_or("another program");
        let mut known = vec![engine, &self.trigger, &self.time];
        known.retain(|part| !part.is_empty());
        known.join(", ")
    }
}

impl fmt::Display for BranchCompaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{} ({})", self.number, self.provenance())
    }
}
