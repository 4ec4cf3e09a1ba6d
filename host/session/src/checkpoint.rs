//! Checkpoints: which lines of a long session the next turn needs, in files beside the session.
//!
//! ```text
//!  <session>        header … first task … … … … [compaction] d e f
//!                     ▲          ▲       ▲          ▲  ▲     ╰─┬─╯ always read
//!  <session>.live   at 0,   at 812,   at 9 310,  at 9 977, from here on
//!  <session>.ids    the fingerprint of every id before that
//! ```
//!
//! A checkpoint holds positions and fingerprints only, and is optional: if it is missing or does not match
//! the session file, the whole file is read.

mod file;
pub(super) mod id_fingerprints;
mod partial_load;
pub(super) mod skipped;
mod working_set;

use std::io;
use std::path::Path;

pub(super) use id_fingerprints::FingerprintCoverage;
pub(super) use partial_load::load;

use super::contents::{LineContent, SessionContents};
use file::{CHECKPOINT_VERSION, CheckpointFile};
use id_fingerprints::FingerprintSum;
use skipped::LinePosition;
use working_set::WorkingSet;

/// Size of a session up to the newest compaction from which a checkpoint is written. Reading less takes a few
/// milliseconds, which is not worth two more files.
pub(super) const MIN_CHECKPOINT_BYTES: u64 = 1 << 20;

/// Writes the checkpoint for the compaction at this position, whose live base is known. Returns the records
/// whose fingerprints are on disk now.
pub(super) fn write_checkpoint(
    session: &Path,
    contents: &SessionContents,
    compaction: usize,
    coverage: Option<FingerprintCoverage>,
) -> io::Result<FingerprintCoverage> {
    let Some(base) = contents.live_base.as_ref().filter(|base| base.at == compaction) else {
        return Err(io::Error::other("the live transcript after the compaction is not known"));
    };
    let needed = WorkingSet::compute(contents, base);
    let (positions, end_bytes) = line_positions(contents, &needed, compaction)?;
    // Positions count loaded records, the checkpoint counts all records of the file.
    let records = contents.skipped_count() + compaction + 1;
    // The fingerprints go first: a checkpoint must never name more of them than there are.
    let sum = extend_fingerprints(session, contents, compaction, coverage)?;
    let checkpoint = CheckpointFile {
        version: CHECKPOINT_VERSION,
        end_bytes,
        records,
        marks: sum,
        header: header_position(contents),
        held: needed.checkpoint_records(contents, &positions),
        live: needed.saved_slots(contents, base),
    };
    checkpoint.write(session)?;
    Ok(FingerprintCoverage { sum, records })
}

/// Positions of the needed records in the file, and the offset of the line after the compaction.
fn line_positions(
    contents: &SessionContents,
    needed: &WorkingSet,
    compaction: usize,
) -> io::Result<(Vec<LinePosition>, u64)> {
    // Records loaded by an earlier checkpoint have no line in memory, but a known position.
    let loaded = contents.skipped.as_ref().map_or(&[][..], |skipped| &skipped.positions);
    let mut positions: Vec<LinePosition> =
        needed.positions().filter_map(|at| loaded.get(at)).copied().collect();
    let mut next_bytes = contents.skipped.as_ref().map_or(0, |skipped| skipped.end_bytes);
    let mut end_bytes = next_bytes;
    for line in &contents.lines {
        let at_bytes = next_bytes;
        next_bytes += contents.line_bytes(line);
        let LineContent::Record(position) = line.content else { continue };
        if needed.contains(position) {
            let text = contents.record_at(position).map_or("", |record| record.line());
            positions.push(LinePosition::from_line(at_bytes, text));
        }
        if position == compaction {
            end_bytes = next_bytes;
            break;
        }
    }
    // The next open trusts a checkpoint to be complete, so an incomplete one must not be written.
    if positions.len() == needed.positions().count() {
        return Ok((positions, end_bytes));
    }
    Err(io::Error::other("a needed record has no line"))
}

fn header_position(contents: &SessionContents) -> LinePosition {
    if let Some(skipped) = &contents.skipped {
        return skipped.header;
    }
    let before =
        contents.lines.iter().take_while(|line| !matches!(line.content, LineContent::Header));
    let at_bytes = before.map(|line| contents.line_bytes(line)).sum();
    LinePosition::from_line(at_bytes, contents.header.line())
}

/// Extends the fingerprints on disk up to the record at `last`; returns their sum.
fn extend_fingerprints(
    session: &Path,
    contents: &SessionContents,
    last: usize,
    coverage: Option<FingerprintCoverage>,
) -> io::Result<FingerprintSum> {
    let skipped_count = contents.skipped_count();
    let is_usable = |coverage: &FingerprintCoverage| {
        // Coverage beyond the compaction would contain ids that the checkpoint must not cover. And
        // the file may have been removed or shortened since it was written.
        (skipped_count..=skipped_count + last + 1).contains(&coverage.records)
            && coverage.sum.fits_file(session)
    };
    let (covered, mut new, first) = match (coverage.filter(is_usable), &contents.skipped) {
        (Some(coverage), _) => (coverage.sum, Vec::new(), coverage.records - skipped_count),
        (None, None) => (FingerprintSum::default(), Vec::new(), 0),
        (None, Some(skipped)) => {
            let known = skipped.id_fingerprints.to_vec();
            (FingerprintSum::default(), known, skipped.positions.len())
        }
    };
    let records = contents.records.get(first..=last).unwrap_or_default();
    new.extend(records.iter().flat_map(id_fingerprints::of_record));
    id_fingerprints::append(session, covered, &new)
}
