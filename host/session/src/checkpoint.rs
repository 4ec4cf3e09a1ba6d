//! The checkpoint beside a session: what its next turn needs of the part that nobody has to read again.
//!
//! ```text
//!  <session>        header … first task … … … … [compaction] d e f
//!                     ▲          ▲       ▲          ▲  ▲     ╰─┬─╯ read as ever
//!  <session>.live   at 0,   at 812,   at 9 310,  at 9 977, from here on
//!  <session>.ids    the fingerprint of every id before that
//! ```
//!
//! It names places of the session file and says nothing that is not there. Whoever opens the session reads
//! those places and what follows, and compares their fingerprints. A checkpoint is never needed: where it
//! is missing or anything about it is off, all of the session is read.

mod id_fingerprints;
mod partial_load;
mod working_set;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub(super) use id_fingerprints::{FingerprintSum, IdFingerprints};
pub(super) use partial_load::load;

use super::contents::{LineContent, SessionContents};
use super::journal::disk::OsJournalDisk;
use super::journal::sidecar::{replace_file, sidecar_path};
use working_set::WorkingSet;

/// The version that this code writes and follows.
const CHECKPOINT_VERSION: u32 = 1;

/// The suffix of one that has not taken its place yet.
pub(super) const STAGED_SUFFIX: &str = "live.new";

/// Bytes of a session before the newest compaction from which on a checkpoint is kept. Less than this is
/// read in a few milliseconds, and two more files beside it would be litter.
pub(super) const MIN_CHECKPOINT_BYTES: u64 = 1 << 20;

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointFile {
    version: u32,
    /// Where the line behind the compaction begins.
    end_bytes: u64,
    /// Records before that.
    records: usize,
    /// Those of their fingerprints.
    marks: FingerprintSum,
    header: LinePosition,
    /// In file order; the last one is the compaction.
    held: Vec<CheckpointRecord>,
    live: Vec<SavedSlot>,
}

/// A line of the session file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LinePosition {
    at_bytes: u64,
    length_bytes: u64,
    fingerprint: u64,
}

/// A record that the next turn needs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointRecord {
    place: LinePosition,
    /// Whether it is on the branch of the compaction.
    on_branch: bool,
    /// Whether the record before it on the branch is left out.
    is_cut: bool,
    /// Whether an entry between it and the one before it here is left out.
    hides: bool,
}

/// An entry that is live behind the compaction. Records are numbered as they are held, from 0.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSlot {
    source: SavedSource,
    /// Compactions, and which of their items changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<(usize, usize)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SavedSource {
    Record(usize),
    /// The system message that a compaction carries.
    Checkpoint(usize),
    /// A compaction, and which of its items put it in.
    Inserted(usize, usize),
}

/// What an excerpt leaves out of a session.
#[derive(Clone, Debug)]
pub(super) struct SkippedRecords {
    /// Where its lines begin; what it holds of the part before has no line here.
    pub(super) end_bytes: u64,
    /// All that is known of the ids before that.
    pub(super) id_fingerprints: Arc<IdFingerprints>,
    records: usize,
    header: LinePosition,
    /// Places of the records that are held, which are the first ones of the excerpt.
    places: Vec<LinePosition>,
    cuts: HashSet<usize>,
    hiding: HashSet<usize>,
}

impl SkippedRecords {
    /// How many records are left out.
    pub(super) fn count(&self) -> usize {
        self.records - self.held_records()
    }

    /// How many of the records before there are here.
    fn held_records(&self) -> usize {
        self.places.len()
    }

    /// Whether the record before this one on the branch is left out.
    pub(super) fn has_gap_before(&self, position: usize) -> bool {
        self.cuts.contains(&position)
    }

    /// Whether an entry between this record and the one before it here is left out.
    pub(super) fn hides_entry_before(&self, position: usize) -> bool {
        self.hiding.contains(&position)
    }
}

/// How far the fingerprints on the disk reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct FingerprintCoverage {
    seal: FingerprintSum,
    /// Records of the file that they cover.
    records: usize,
}

/// Keeps a checkpoint for the compaction at this position, behind which the contents stand. Answers how
/// far the fingerprints reach now.
pub(super) fn write_checkpoint(
    session: &Path,
    contents: &SessionContents,
    compaction: usize,
    sealed: Option<FingerprintCoverage>,
) -> io::Result<FingerprintCoverage> {
    let Some(standing) = contents.live_base.as_ref().filter(|it| it.at == compaction) else {
        return Err(io::Error::other("what is live behind the compaction is not known"));
    };
    let needed = WorkingSet::compute(contents, standing);
    let (places, end_bytes) = places_of(contents, &needed, compaction)?;
    let records = contents.skipped_count() + compaction + 1;
    let seal = id_fingerprints::extend(session, contents, compaction, sealed)?;
    let checkpoint = CheckpointFile {
        version: CHECKPOINT_VERSION,
        end_bytes,
        records,
        marks: seal,
        header: header_place(contents),
        held: needed.checkpoint_records(contents, &places),
        live: needed.saved_slots(contents, standing),
    };
    checkpoint.write(session)?;
    Ok(FingerprintCoverage { seal, records })
}

/// Where the needed records stand in the file, and where the line behind the last one begins.
fn places_of(
    contents: &SessionContents,
    needed: &WorkingSet,
    compaction: usize,
) -> io::Result<(Vec<LinePosition>, u64)> {
    let known = contents.skipped.as_ref().map_or(&[][..], |older| &older.places);
    let mut places: Vec<LinePosition> =
        needed.positions().filter_map(|at| known.get(at)).copied().collect();
    let mut at_bytes = contents.skipped.as_ref().map_or(0, |older| older.end_bytes);
    let mut end_bytes = at_bytes;
    for line in &contents.lines {
        let here_bytes = at_bytes;
        at_bytes += contents.line_bytes(line);
        let LineContent::Record(position) = line.content else { continue };
        if needed.contains(position) {
            let text = contents.record_at(position).map_or("", |record| record.line());
            places.push(LinePosition::from_line(here_bytes, text));
        }
        if position == compaction {
            end_bytes = at_bytes;
            break;
        }
    }
    if places.len() == needed.positions().count() {
        return Ok((places, end_bytes));
    }
    Err(io::Error::other("a record that is needed has no line"))
}

fn header_place(contents: &SessionContents) -> LinePosition {
    if let Some(older) = &contents.skipped {
        return older.header;
    }
    let before =
        contents.lines.iter().take_while(|line| !matches!(line.content, LineContent::Header));
    let at_bytes = before.map(|line| contents.line_bytes(line)).sum();
    LinePosition::from_line(at_bytes, contents.header.line())
}

impl LinePosition {
    fn from_line(at_bytes: u64, line: &str) -> LinePosition {
        let fingerprint = fingerprint(line.as_bytes());
        LinePosition { at_bytes, length_bytes: line.len() as u64, fingerprint }
    }
}

/// Eight bytes that stand for many: the beginning of their SHA-256.
fn fingerprint(bytes: &[u8]) -> u64 {
    let hash = Sha256::digest(bytes);
    hash.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

impl CheckpointFile {
    fn write(&self, session: &Path) -> io::Result<()> {
        let json = serde_json::to_string(self)?;
        let (path, staged) = (sidecar_path(session, "live"), sidecar_path(session, STAGED_SUFFIX));
        let text = format!("{:016x}\n{json}\n", fingerprint(json.as_bytes()));
        replace_file(&OsJournalDisk, &path, &staged, None, text.as_bytes()).map(drop)
    }

    /// The one beside a session, where it is whole and of this version.
    fn read(session: &Path) -> Option<CheckpointFile> {
        let text =
            ctxhost_files::read_text(&sidecar_path(session, "live"), SESSION_FILE_BYTES).ok()?;
        let (seal, json) = text.strip_suffix('\n')?.split_once('\n')?;
        let is_whole = seal == format!("{:016x}", fingerprint(json.as_bytes()));
        let checkpoint: CheckpointFile = is_whole.then(|| serde_json::from_str(json).ok())??;
        (checkpoint.version == CHECKPOINT_VERSION).then_some(checkpoint)
    }
}
