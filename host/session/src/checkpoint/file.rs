//! The checkpoint file `<session>.live`.

use std::io;
use std::path::Path;

use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};

use super::id_fingerprints::{FingerprintSum, fingerprint};
use super::skipped::LinePosition;
use crate::journal::disk::OsJournalDisk;
use crate::journal::sidecar::{replace_file, sidecar_path};

/// The version that this code reads and writes.
pub(super) const CHECKPOINT_VERSION: u32 = 1;

/// The suffix of the staging file.
const STAGED_SUFFIX: &str = "live.new";

/// The content of the file. Field names are part of the format.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckpointFile {
    pub(super) version: u32,
    /// Offset of the line after the compaction.
    pub(super) end_bytes: u64,
    /// Number of records before it.
    pub(super) records: usize,
    /// Sum of their fingerprints.
    pub(super) marks: FingerprintSum,
    pub(super) header: LinePosition,
    /// In file order; the last one is the compaction.
    pub(super) held: Vec<CheckpointRecord>,
    pub(super) live: Vec<SavedSlot>,
}

/// A record that the next turn needs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckpointRecord {
    pub(super) place: LinePosition,
    /// Whether it is on the branch of the compaction.
    pub(super) on_branch: bool,
    /// Whether its predecessor on the branch is not held.
    pub(super) is_cut: bool,
    /// Whether an entry between it and the held record before it is not held.
    pub(super) hides: bool,
}

/// An entry that is live after the compaction. Numbers index `held`, from 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSlot {
    pub(super) source: SavedSource,
    /// Pairs of a compaction and the item of it that changed the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<(usize, usize)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SavedSource {
    Record(usize),
    /// The system message carried by a compaction.
    Checkpoint(usize),
    /// A compaction, and the item of it that inserted the message.
    Inserted(usize, usize),
}

impl CheckpointFile {
    pub(super) fn write(&self, session: &Path) -> io::Result<()> {
        let json = serde_json::to_string(self)?;
        let (path, staged) = (sidecar_path(session, "live"), sidecar_path(session, STAGED_SUFFIX));
        // A damaged digit in a position would still be valid JSON.
        let text = format!("{:016x}\n{json}\n", fingerprint(json.as_bytes()));
        replace_file(&OsJournalDisk, &path, &staged, None, text.as_bytes()).map(drop)
    }

    /// Reads the checkpoint of a session; `None` if it is missing, damaged or of another version.
    pub(super) fn read(session: &Path) -> Option<CheckpointFile> {
        let text =
            ctxhost_files::read_text(&sidecar_path(session, "live"), SESSION_FILE_BYTES).ok()?;
        let (checksum, json) = text.strip_suffix('\n')?.split_once('\n')?;
        let is_intact = checksum == format!("{:016x}", fingerprint(json.as_bytes()));
        let checkpoint: CheckpointFile = is_intact.then(|| serde_json::from_str(json).ok())??;
        (checkpoint.version == CHECKPOINT_VERSION).then_some(checkpoint)
    }
}
