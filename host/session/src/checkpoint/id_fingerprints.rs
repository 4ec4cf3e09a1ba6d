//! Fingerprints of all ids of a session, so that a duplicate id is detected without reading its record.

use std::io;
use std::path::Path;

use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::journal::disk::{JournalDisk as _, OpenMode, OsJournalDisk};
use crate::journal::sidecar::sidecar_path;
use crate::record::Record;

const FINGERPRINT_BYTES: usize = size_of::<u64>();

/// The first eight bytes of the SHA-256, as a big-endian number.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    let hash = Sha256::digest(bytes);
    hash.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Id fingerprints of the records that were not loaded.
#[derive(Debug, Default)]
pub(crate) struct IdFingerprints {
    sorted: Vec<u64>,
}

/// Number and sum of fingerprints, to verify that a file holds the expected ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FingerprintSum {
    count: u64,
    sum: u64,
}

/// The records whose fingerprints are on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FingerprintCoverage {
    pub(super) sum: FingerprintSum,
    /// Number of records, from the start of the file.
    pub(super) records: usize,
}

impl FingerprintSum {
    fn with(self, new: &[u64]) -> FingerprintSum {
        // A sum can be extended without reading the file again, and ignores the order.
        let sum = new.iter().fold(self.sum, |sum, fingerprint| sum.wrapping_add(*fingerprint));
        FingerprintSum { count: self.count + new.len() as u64, sum }
    }

    fn length_bytes(self) -> u64 {
        self.count * FINGERPRINT_BYTES as u64
    }

    /// Whether the file beside a session is long enough to hold these fingerprints.
    pub(super) fn fits_file(self, session: &Path) -> bool {
        let metadata = sidecar_path(session, "ids").metadata();
        metadata.is_ok_and(|metadata| metadata.len() >= self.length_bytes())
    }
}

impl IdFingerprints {
    /// Reads the fingerprints beside a session; `None` if they do not match the sum.
    pub(super) fn read(session: &Path, sum: FingerprintSum) -> Option<IdFingerprints> {
        let mut bytes =
            ctxhost_files::read(&sidecar_path(session, "ids"), SESSION_FILE_BYTES).ok()?;
        let length = usize::try_from(sum.length_bytes()).ok()?;
        if bytes.len() < length {
            return None;
        }
        // The file may be longer than the checkpoint: fingerprints are written before it.
        bytes.truncate(length);
        let (chunks, _) = bytes.as_chunks::<FINGERPRINT_BYTES>();
        let mut sorted: Vec<u64> = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        sorted.sort_unstable();
        (FingerprintSum::default().with(&sorted) == sum).then_some(IdFingerprints { sorted })
    }

    /// Whether a record has this id.
    pub(crate) fn has_record(&self, id: &str) -> bool {
        // A collision (1 in 2^64 per pair) only makes a new record take the next id.
        self.sorted.binary_search(&of_record_id(id)).is_ok()
    }

    /// Whether the queued message with this id was delivered.
    pub(crate) fn has_message(&self, id: &str) -> bool {
        self.sorted.binary_search(&of_message_id(id)).is_ok()
    }

    pub(super) fn to_vec(&self) -> Vec<u64> {
        self.sorted.clone()
    }
}

fn of_record_id(id: &str) -> u64 {
    fingerprint(id.as_bytes())
}

/// The prefix keeps a message apart from a record of the same id; it is part of the file format.
fn of_message_id(id: &str) -> u64 {
    fingerprint(format!("letter {id}").as_bytes())
}

/// The fingerprints of a record: of its id, and of the queued message it delivered.
pub(super) fn of_record(record: &Record) -> impl Iterator<Item = u64> {
    let message = record.inbox_id().map(|id| of_message_id(&id));
    std::iter::once(of_record_id(record.id())).chain(message)
}

/// Appends fingerprints after the covered ones; returns the sum of all.
pub(super) fn append(
    session: &Path,
    covered: FingerprintSum,
    new: &[u64],
) -> io::Result<FingerprintSum> {
    let bytes: Vec<u8> = new.iter().flat_map(|fingerprint| fingerprint.to_le_bytes()).collect();
    let mut file = OsJournalDisk.open(&sidecar_path(session, "ids"), OpenMode::Any)?;
    // A crash may have left fingerprints that no checkpoint covers.
    file.truncate(covered.length_bytes())?;
    file.append(&bytes)?;
    Ok(covered.with(new))
}
