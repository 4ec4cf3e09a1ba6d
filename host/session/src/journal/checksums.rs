//! The checksum file `<name>.crc`: one row per line that ctxhost wrote, in write order.
//!
//! It is optional: without it, or if it cannot be written, `fsck` detects less.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_files::SESSION_FILE_BYTES;

use super::disk::{DiskFile, JournalDisk, OpenMode};
use super::sidecar::sidecar_path;
use crate::lines::split_lines;

/// The start of the file; its last byte is the version.
const HEAD: &[u8; 8] = b"ctxcrc\0\x01";

/// Length of a row: line length, CRC-32 of the line, and CRC-32 of these eight bytes.
const ROW_BYTES: usize = 12;

/// Length and CRC-32 of a line, without its line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChecksumRow {
    pub(crate) length_bytes: u32,
    crc: u32,
}

impl ChecksumRow {
    /// The row of a line.
    pub(crate) fn from_line(line: &[u8]) -> ChecksumRow {
        let length_bytes = u32::try_from(line.len()).unwrap_or(u32::MAX);
        ChecksumRow { length_bytes, crc: crc32fast::hash(line) }
    }

    fn to_bytes(self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        let (known, check) = bytes.split_at_mut(8);
        let (length, crc) = known.split_at_mut(4);
        length.copy_from_slice(&self.length_bytes.to_le_bytes());
        crc.copy_from_slice(&self.crc.to_le_bytes());
        // So that a damaged row is not taken for a damaged line.
        check.copy_from_slice(&crc32fast::hash(known).to_le_bytes());
        bytes
    }

    /// Parses a row; `None` if it is damaged.
    fn parse(bytes: &[u8]) -> Option<ChecksumRow> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (crc, _) = rest.split_first_chunk()?;
        let row = ChecksumRow {
            length_bytes: u32::from_le_bytes(*length),
            crc: u32::from_le_bytes(*crc),
        };
        (row.to_bytes() == bytes).then_some(row)
    }
}

/// The rows of a checksum file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ChecksumRows {
    /// In write order.
    pub(crate) rows: Vec<ChecksumRow>,
    /// Whether some are incomplete or damaged.
    pub(crate) has_bad: bool,
}

impl ChecksumRows {
    /// Reads those beside a session; `None` if there is no file of this version.
    pub(crate) fn read_beside(session: &Path) -> Option<ChecksumRows> {
        let bytes = ctxhost_files::read(&checksum_path(session), SESSION_FILE_BYTES).ok()?;
        let body = bytes.strip_prefix(HEAD)?;
        let parsed: Vec<Option<ChecksumRow>> =
            body.chunks(ROW_BYTES).map(ChecksumRow::parse).collect();
        let has_bad = parsed.iter().any(Option::is_none);
        Some(ChecksumRows { rows: parsed.into_iter().flatten().collect(), has_bad })
    }
}

/// The path of the checksum file of a session.
pub(crate) fn checksum_path(session: &Path) -> PathBuf {
    sidecar_path(session, "crc")
}

/// Rewrites the checksums of all lines.
pub(crate) fn rebuild(disk: Arc<dyn JournalDisk>, session: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut checksums = ChecksumWriter::new(disk, session);
    checksums.discard()?;
    checksums.open()?;
    checksums.write(bytes)
}

/// Replaces all rows; without rows, removes the file.
pub(crate) fn replace(
    disk: Arc<dyn JournalDisk>,
    session: &Path,
    rows: &[ChecksumRow],
) -> io::Result<()> {
    let mut checksums = ChecksumWriter::new(disk, session);
    checksums.discard()?;
    if rows.is_empty() {
        return Ok(());
    }
    checksums.open()?;
    checksums.write_rows(rows.iter().copied())
}

/// The checksum file of a session that is open for writing. It is opened with the first row.
#[derive(Debug)]
pub(super) struct ChecksumWriter {
    disk: Arc<dyn JournalDisk>,
    path: PathBuf,
    state: WriterState,
}

#[derive(Debug)]
enum WriterState {
    Unopened,
    Open {
        file: Box<dyn DiskFile>,
        length_bytes: u64,
    },
    /// Writing failed, or the file has another version.
    Off,
}

impl ChecksumWriter {
    pub(super) fn new(disk: Arc<dyn JournalDisk>, session: &Path) -> ChecksumWriter {
        ChecksumWriter { disk, path: checksum_path(session), state: WriterState::Unopened }
    }

    /// Adds rows for the lines written to the session. Failure is logged only, since checksums are optional.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let opened = match self.state {
            WriterState::Unopened => self.open(),
            WriterState::Open { .. } | WriterState::Off => Ok(()),
        };
        if let Err(error) = opened.and_then(|()| self.write(bytes)) {
            tracing::warn!(file = %self.path.display(), %error, "no more checksums for this session");
            self.state = WriterState::Off;
        }
    }

    /// Removes the file, before the lines it describes change.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        self.disk.remove(&self.path)?;
        self.state = WriterState::Unopened;
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let mut file = self.disk.open(&self.path, OpenMode::Any)?;
        let bytes = file.read()?;
        let is_ours = bytes.starts_with(HEAD);
        // Rows of a newer version, to which this one must not append.
        if bytes.len() >= HEAD.len() && !is_ours {
            self.state = WriterState::Off;
            return Ok(());
        }
        // A crash may leave a partial head or last row.
        let half_bytes = bytes.len().saturating_sub(HEAD.len()) % ROW_BYTES;
        let whole_bytes = if is_ours { bytes.len() - half_bytes } else { 0 };
        if whole_bytes < bytes.len() {
            file.truncate(whole_bytes as u64)?;
        }
        if !is_ours {
            file.append(HEAD)?;
        }
        let length_bytes = whole_bytes.max(HEAD.len()) as u64;
        self.state = WriterState::Open { file, length_bytes };
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_rows(checksummed_lines(bytes).map(ChecksumRow::from_line))
    }

    fn write_rows(&mut self, rows: impl Iterator<Item = ChecksumRow>) -> io::Result<()> {
        let WriterState::Open { file, length_bytes } = &mut self.state else { return Ok(()) };
        let rows: Vec<u8> = rows.flat_map(ChecksumRow::to_bytes).collect();
        if let Err(error) = file.append(&rows) {
            // If this fails, opening the file again truncates the partial row.
            let _ = file.truncate(*length_bytes);
            return Err(error);
        }
        *length_bytes += rows.len() as u64;
        Ok(())
    }
}

/// The lines that have rows, which are all but blank ones.
pub(crate) fn checksummed_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_lines(bytes).map(|(line, _)| line).filter(|line| !line.trim_ascii().is_empty())
}
