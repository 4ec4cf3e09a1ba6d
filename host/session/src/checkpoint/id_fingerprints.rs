//! The fingerprints of all ids of a session, so that one that is taken is known without reading the record
//! that has it: of its records, and of the letters that were delivered to it.

use std::io;
use std::path::Path;

use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};

use super::{FingerprintCoverage, SkippedRecords, fingerprint};
use crate::contents::SessionContents;
use crate::journal::disk::{JournalDisk as _, OpenMode, OsJournalDisk};
use crate::journal::sidecar::sidecar_path;
use crate::record::Record;

/// Bytes of a fingerprint in the file.
const MARK_BYTES: usize = size_of::<u64>();

/// The fingerprints of the part of a session that was not read.
#[derive(Debug, Default)]
pub(crate) struct IdFingerprints {
    sorted: Vec<u64>,
}

/// How many there are and what they add up to, so that others are not taken for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FingerprintSum {
    count: u64,
    sum: u64,
}

impl FingerprintSum {
    fn with(self, marks: &[u64]) -> FingerprintSum {
        let sum = marks.iter().fold(self.sum, |sum, mark| sum.wrapping_add(*mark));
        FingerprintSum { count: self.count + marks.len() as u64, sum }
    }

    fn bytes(self) -> u64 {
        self.count * MARK_BYTES as u64
    }
}

impl IdFingerprints {
    /// Those beside a session up to a seal; `None` where they are other ones.
    pub(super) fn read(session: &Path, seal: FingerprintSum) -> Option<IdFingerprints> {
        let mut bytes =
            ctxhost_files::read(&sidecar_path(session, "ids"), SESSION_FILE_BYTES).ok()?;
        let whole_bytes = usize::try_from(seal.bytes()).ok()?;
        if bytes.len() < whole_bytes {
            return None;
        }
        bytes.truncate(whole_bytes);
        let (chunks, _) = bytes.as_chunks::<MARK_BYTES>();
        let mut sorted: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        sorted.sort_unstable();
        (FingerprintSum::default().with(&sorted) == seal).then_some(IdFingerprints { sorted })
    }

    /// Whether a record has this id. Two ids have the same fingerprint once in 2^64: then one is
    /// taken for the other, and a new record gets the next id.
    pub(crate) fn has_record(&self, id: &str) -> bool {
        self.sorted.binary_search(&of_record(id)).is_ok()
    }

    /// Whether a letter with this id was delivered.
    pub(crate) fn has_message(&self, id: &str) -> bool {
        self.sorted.binary_search(&of_letter(id)).is_ok()
    }
}

fn of_record(id: &str) -> u64 {
    fingerprint(id.as_bytes())
}

/// A letter may have the id of a record.
fn of_letter(id: &str) -> u64 {
    fingerprint(format!("letter {id}").as_bytes())
}

fn of(record: &Record) -> impl Iterator<Item = u64> {
    let letter = record.inbox_id().map(|id| of_letter(&id));
    std::iter::once(of_record(record.id())).chain(letter)
}

/// Brings the fingerprints on the disk up to the record at `last`; answers what they add up to.
pub(super) fn extend(
    session: &Path,
    contents: &SessionContents,
    last: usize,
    sealed: Option<FingerprintCoverage>,
) -> io::Result<FingerprintSum> {
    let left_out = contents.skipped_count();
    let covers = |sealed: &FingerprintCoverage| {
        (left_out..=left_out + last + 1).contains(&sealed.records)
            && is_long_enough(session, sealed.seal)
    };
    let (seal, mut new, first) = match sealed.filter(covers) {
        Some(sealed) => (sealed.seal, Vec::new(), sealed.records - left_out),
        None => (
            FingerprintSum::default(),
            older(contents),
            contents.skipped.as_ref().map_or(0, SkippedRecords::held_records),
        ),
    };
    let records = contents.records.get(first..=last).unwrap_or_default();
    new.extend(records.iter().flat_map(of));
    write(session, seal, &new)?;
    Ok(seal.with(&new))
}

fn older(contents: &SessionContents) -> Vec<u64> {
    contents.skipped.as_ref().map_or_else(Vec::new, |older| older.id_fingerprints.sorted.clone())
}

fn is_long_enough(session: &Path, seal: FingerprintSum) -> bool {
    sidecar_path(session, "ids").metadata().is_ok_and(|found| found.len() >= seal.bytes())
}

/// Puts new fingerprints behind those that are sealed. What a crash left behind them goes.
fn write(session: &Path, seal: FingerprintSum, new: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = new.iter().flat_map(|mark| mark.to_le_bytes()).collect();
    let mut file = OsJournalDisk.open(&sidecar_path(session, "ids"), OpenMode::Any)?;
    file.truncate(seal.bytes())?;
    file.append(&bytes)
}
