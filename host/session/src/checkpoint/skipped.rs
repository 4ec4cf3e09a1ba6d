//! The part of a session that a partial load left in the file.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id_fingerprints::{IdFingerprints, fingerprint};

/// Position and fingerprint of a line of the session file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LinePosition {
    pub(super) at_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) fingerprint: u64,
}

impl LinePosition {
    pub(super) fn from_line(at_bytes: u64, line: &str) -> LinePosition {
        let fingerprint = fingerprint(line.as_bytes());
        LinePosition { at_bytes, length_bytes: line.len() as u64, fingerprint }
    }
}

/// What is known of the records up to the checkpoint, of which only some are loaded.
#[derive(Clone, Debug)]
pub(crate) struct SkippedRecords {
    /// Where the loaded lines begin. Loaded records from before have no line.
    pub(crate) end_bytes: u64,
    /// Fingerprints of all ids before `end_bytes`.
    pub(crate) id_fingerprints: Arc<IdFingerprints>,
    /// Number of records before `end_bytes`.
    pub(super) records: usize,
    pub(super) header: LinePosition,
    /// Positions of the loaded ones, which are the first records of the contents.
    pub(super) positions: Vec<LinePosition>,
    /// Records whose predecessor on the branch is not loaded.
    pub(super) gaps: HashSet<usize>,
    /// Records with a skipped entry between them and the loaded record before.
    pub(super) hidden_entries: HashSet<usize>,
}

impl SkippedRecords {
    /// Number of records that are not loaded.
    pub(crate) fn count(&self) -> usize {
        self.records - self.positions.len()
    }

    /// Whether the predecessor of this record on the branch is not loaded.
    pub(crate) fn has_gap_before(&self, position: usize) -> bool {
        self.gaps.contains(&position)
    }

    /// Whether an entry between this record and the loaded one before it is not loaded.
    pub(crate) fn hides_entry_before(&self, position: usize) -> bool {
        self.hidden_entries.contains(&position)
    }
}
