//! The lines of a session that can be mended: a header that cannot be read, and lines that one damaged byte
//! has joined.

use std::path::Path;

use super::FsckReport;
use super::fault::FaultKind;
use super::joined_lines::split_joined_line;
use super::salvage;
use crate::error::SessionError;
use crate::header::SessionHeader;
use crate::journal::Journal;
use crate::journal::checksums::{ChecksumRow, ChecksumRows};
use crate::lines::{LineEnding, split_lines};
use crate::parse::{LineClass, classify_line};
use crate::record::is_session_record;

/// A session file as it should be.
struct RepairedFile {
    bytes: Vec<u8>,
    /// The damaged lines, as they were.
    damaged: Vec<u8>,
    rows: Vec<ChecksumRow>,
    actions: Vec<String>,
}

/// Mends what can be mended of a file; says what was done. The damaged lines are kept beside it.
pub(super) fn repair_lines(found: &FsckReport) -> Vec<String> {
    const MAY_BE_MENDED: [FaultKind; 4] =
        [FaultKind::Header, FaultKind::BadLine, FaultKind::Changed, FaultKind::TornTail];
    if !found.faults.iter().any(|fault| MAY_BE_MENDED.contains(&fault.kind)) {
        return Vec::new();
    }
    let done = || -> Result<Vec<String>, SessionError> {
        // Opened for its lock: nobody adds lines meanwhile.
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        if let Some(long) = lines.long.first() {
            // What is not held cannot be written again.
            return Ok(vec![format!("not repaired: line {}: {}", long.line, long.message())]);
        }
        let rows = ChecksumRows::read_beside(&found.path).unwrap_or_default();
        let Some(mended) = mended(&found.path, &lines.bytes, rows.rows) else {
            return Ok(Vec::new());
        };
        let aside = journal.repair(&mended.bytes, &mended.damaged, &mended.rows)?;
        let mut said = mended.actions;
        if !mended.damaged.is_empty() {
            said.push(format!("what stood there before was kept in {}", aside.display()));
        }
        Ok(said)
    };
    done().unwrap_or_else(|error| vec![format!("not repaired: {error}")])
}

/// A line as it will be written.
struct RepairedLine {
    text: Vec<u8>,
    ending: LineEnding,
}

fn mended(path: &Path, bytes: &[u8], rows: Vec<ChecksumRow>) -> Option<RepairedFile> {
    let (mut damaged, mut said) = (Vec::new(), Vec::new());
    let mut lines = Vec::new();
    for (at, (text, ending)) in split_lines(bytes).enumerate() {
        let is_bad = matches!(classify_line(text), LineClass::Bad(_));
        let Some(pieces) = is_bad.then(|| split_joined_line(text)).flatten() else {
            lines.push(RepairedLine { text: text.to_owned(), ending });
            continue;
        };
        damaged.extend_from_slice(text);
        damaged.extend_from_slice(b"\n");
        said.push(format!("line {} was written anew, as {} lines", at + 1, pieces.len()));
        let ending = if ending == LineEnding::Missing { LineEnding::Lf } else { ending };
        lines.extend(
            pieces.iter().map(|piece| RepairedLine { text: piece.as_bytes().to_owned(), ending }),
        );
    }
    let mut mended = RepairedFile { bytes: Vec::new(), damaged, rows, actions: said };
    mended.header(path, &mut lines);
    if mended.actions.is_empty() {
        return None;
    }
    for line in lines {
        mended.bytes.extend_from_slice(&line.text);
        mended.bytes.extend_from_slice(line.ending.bytes());
    }
    Some(mended)
}

impl RepairedFile {
    fn header(&mut self, path: &Path, lines: &mut Vec<RepairedLine>) {
        let Some(at) = lines.iter().position(|line| !line.text.trim_ascii().is_empty()) else {
            return;
        };
        if let Some((header, taken)) = self.proven(at, lines) {
            self.replace(at, taken, &header, lines);
            self.actions
                .push(format!("line {}: the header was restored, as its checksum says", at + 1));
            return;
        }
        let first =
            lines.iter().map(|line| classify_line(&line.text)).find_map(|text| match text {
                LineClass::Json(text) => Some(text),
                LineClass::Blank | LineClass::Bad(_) => None,
            });
        let is_known =
            |text: &str| SessionHeader::parse(text).is_ok() || SessionHeader::has_version_0(text);
        let texts = lines.iter().filter_map(|line| std::str::from_utf8(&line.text).ok());
        let records: Vec<&str> = texts.filter(|text| is_session_record(text)).collect();
        if first.is_some_and(is_known) || records.is_empty() {
            return;
        }
        let old = lines.get(at).map(|line| String::from_utf8_lossy(&line.text).into_owned());
        let old = old.unwrap_or_default();
        // Only a record names its parent, and a damaged one is no header.
        let is_record = old.contains("parentId") || is_session_record(&old);
        let left = if is_record { "" } else { old.as_str() };
        let known = lines
            .iter()
            .find_map(|line| SessionHeader::parse(str::from_utf8(&line.text).ok()?).ok());
        let Some(header) = known.or_else(|| salvage::salvage_header(left, path, &records)) else {
            return;
        };
        self.actions.push(format!(
            "line {}: the header was written anew, the session has the id {}",
            at + 1,
            header.id()
        ));
        self.replace(at, usize::from(!is_record), header.line().as_bytes(), lines);
    }

    /// Puts a header in the place of so many lines.
    fn replace(&mut self, at: usize, taken: usize, header: &[u8], lines: &mut Vec<RepairedLine>) {
        let ending = lines.get(at).map_or(LineEnding::Lf, |line| line.ending);
        let ending = if ending == LineEnding::Missing { LineEnding::Lf } else { ending };
        let old: Vec<RepairedLine> = lines.drain(at..(at + taken).min(lines.len())).collect();
        for line in &old {
            self.damaged.extend_from_slice(&line.text);
            self.damaged.extend_from_slice(line.ending.bytes());
        }
        // A header that stands further down is this one.
        lines.retain(|line| line.text != header);
        lines.insert(at, RepairedLine { text: header.to_owned(), ending });
        let row = ChecksumRow::from_line(header);
        if self.rows.is_empty() || self.rows.contains(&row) {
            return;
        }
        let is_of_a_line =
            |row: &ChecksumRow| lines.iter().any(|line| ChecksumRow::from_line(&line.text) == *row);
        match self.rows.first_mut() {
            Some(first) if !is_of_a_line(first) => *first = row,
            _ => self.rows.insert(0, row),
        }
    }

    /// The header that the first checksum is of, where one damaged byte is all that is wrong with it, and how
    /// many lines it stood on: the byte may have become a line break.
    fn proven(&self, at: usize, lines: &[RepairedLine]) -> Option<(Vec<u8>, usize)> {
        let row = self.rows.first()?;
        let is_there = lines.iter().any(|line| ChecksumRow::from_line(&line.text) == *row);
        if is_there {
            return None;
        }
        let first = lines.get(at)?;
        let joined = lines.get(at + 1).map(|second| {
            [first.text.as_slice(), first.ending.bytes(), second.text.as_slice()].concat()
        });
        let candidates = [(Some(first.text.clone()), 1), (joined, 2)];
        candidates.into_iter().find_map(|(text, taken)| Some((one_byte_away(text?, *row)?, taken)))
    }
}

/// The header of this checksum that differs from a line in one byte.
fn one_byte_away(mut line: Vec<u8>, row: ChecksumRow) -> Option<Vec<u8>> {
    /// Bytes of a header that are tried; each costs 255 checksums of all of them.
    const MOST_BYTES: usize = 4_096;
    if line.len() > MOST_BYTES || !ChecksumRow::from_line(&line).is_as_long_as(row) {
        return None;
    }
    for at in 0..line.len() {
        let was = *line.get(at)?;
        for byte in (0..=u8::MAX).filter(|byte| *byte != was) {
            *line.get_mut(at)? = byte;
            if ChecksumRow::from_line(&line) == row && is_header(&line) {
                return Some(line);
            }
        }
        *line.get_mut(at)? = was;
    }
    None
}

fn is_header(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| SessionHeader::parse(text).is_ok())
}
