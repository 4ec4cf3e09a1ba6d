//! Repairs an unreadable header, and lines that one damaged byte joined.

use std::path::Path;

use super::fault::FaultKind;
use super::joined_lines::split_joined_line;
use super::{FsckReport, NOT_REPAIRED, salvage};
use crate::error::SessionError;
use crate::header::SessionHeader;
use crate::journal::Journal;
use crate::journal::checksums::{ChecksumRow, ChecksumRows};
use crate::lines::{LineEnding, split_lines};
use crate::parse::{LineClass, classify_line};
use crate::record::is_session_record;

/// A repaired session file.
struct RepairedFile {
    bytes: Vec<u8>,
    /// The original bytes of the repaired lines.
    damaged: Vec<u8>,
    rows: Vec<ChecksumRow>,
    actions: Vec<String>,
}

/// Repairs a file and returns what was done. The damaged lines are saved beside it.
pub(super) fn repair_lines(found: &FsckReport) -> Vec<String> {
    const REPAIRABLE: [FaultKind; 4] =
        [FaultKind::Header, FaultKind::BadLine, FaultKind::Changed, FaultKind::TornTail];
    if !found.faults.iter().any(|fault| REPAIRABLE.contains(&fault.kind)) {
        return Vec::new();
    }
    let repair = || -> Result<Vec<String>, SessionError> {
        // For its lock, so that no other process appends meanwhile.
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        if let Some(long) = lines.long.first() {
            // The line is not in memory, so rewriting the file would lose it.
            return Ok(vec![format!("{NOT_REPAIRED}line {}: {}", long.line, long.message())]);
        }
        let rows = ChecksumRows::read_beside(&found.path).unwrap_or_default();
        let Some(repaired) = repair_bytes(&found.path, &lines.bytes, rows.rows) else {
            return Ok(Vec::new());
        };
        let copy = journal.repair(&repaired.bytes, &repaired.damaged, &repaired.rows)?;
        let mut actions = repaired.actions;
        if !repaired.damaged.is_empty() {
            actions.push(format!("saved the original lines to {}", copy.display()));
        }
        Ok(actions)
    };
    repair().unwrap_or_else(|error| vec![format!("{NOT_REPAIRED}{error}")])
}

/// A line to be written.
struct RepairedLine {
    text: Vec<u8>,
    ending: LineEnding,
}

fn repair_bytes(path: &Path, bytes: &[u8], rows: Vec<ChecksumRow>) -> Option<RepairedFile> {
    let (mut damaged, mut actions) = (Vec::new(), Vec::new());
    let mut lines = Vec::new();
    for (at, (text, ending)) in split_lines(bytes).enumerate() {
        let is_bad = matches!(classify_line(text), LineClass::Bad(_));
        let Some(pieces) = is_bad.then(|| split_joined_line(text)).flatten() else {
            lines.push(RepairedLine { text: text.to_owned(), ending });
            continue;
        };
        damaged.extend_from_slice(text);
        damaged.extend_from_slice(b"\n");
        actions.push(format!("line {}: rewritten as {} lines", at + 1, pieces.len()));
        let ending = if ending == LineEnding::Missing { LineEnding::Lf } else { ending };
        lines.extend(
            pieces.iter().map(|piece| RepairedLine { text: piece.as_bytes().to_owned(), ending }),
        );
    }
    let mut repaired = RepairedFile { bytes: Vec::new(), damaged, rows, actions };
    repaired.repair_header(path, &mut lines);
    if repaired.actions.is_empty() {
        return None;
    }
    for line in lines {
        repaired.bytes.extend_from_slice(&line.text);
        repaired.bytes.extend_from_slice(line.ending.bytes());
    }
    Some(repaired)
}

impl RepairedFile {
    fn repair_header(&mut self, path: &Path, lines: &mut Vec<RepairedLine>) {
        let Some(at) = lines.iter().position(|line| !line.text.trim_ascii().is_empty()) else {
            return;
        };
        if let Some((header, line_count)) = self.restore_by_checksum(at, lines) {
            self.replace(at, line_count, &header, lines);
            self.actions.push(format!("line {}: header restored from its checksum", at + 1));
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
        // A damaged record must stay: only records have a parent.
        let is_record = old.contains("parentId") || is_session_record(&old);
        let damaged = if is_record { "" } else { old.as_str() };
        let known = lines
            .iter()
            .find_map(|line| SessionHeader::parse(str::from_utf8(&line.text).ok()?).ok());
        let Some(header) = known.or_else(|| salvage::salvage_header(damaged, path, &records))
        else {
            return;
        };
        self.actions.push(format!(
            "line {}: header rewritten, the session id is {}",
            at + 1,
            header.id()
        ));
        self.replace(at, usize::from(!is_record), header.line().as_bytes(), lines);
    }

    /// Replaces `count` lines by a header.
    fn replace(&mut self, at: usize, count: usize, header: &[u8], lines: &mut Vec<RepairedLine>) {
        let ending = lines.get(at).map_or(LineEnding::Lf, |line| line.ending);
        let ending = if ending == LineEnding::Missing { LineEnding::Lf } else { ending };
        let old: Vec<RepairedLine> = lines.drain(at..(at + count).min(lines.len())).collect();
        for line in &old {
            self.damaged.extend_from_slice(&line.text);
            self.damaged.extend_from_slice(line.ending.bytes());
        }
        // A misplaced header further down is the one that is inserted here.
        lines.retain(|line| line.text != header);
        lines.insert(at, RepairedLine { text: header.to_owned(), ending });
        let row = ChecksumRow::from_line(header);
        if self.rows.is_empty() || self.rows.contains(&row) {
            return;
        }
        let has_line =
            |row: &ChecksumRow| lines.iter().any(|line| ChecksumRow::from_line(&line.text) == *row);
        match self.rows.first_mut() {
            // The row of the damaged header.
            Some(first) if !has_line(first) => *first = row,
            _ => self.rows.insert(0, row),
        }
    }

    /// The header with the first checksum, if it differs in one byte, and the number of lines that it is
    /// on now.
    fn restore_by_checksum(&self, at: usize, lines: &[RepairedLine]) -> Option<(Vec<u8>, usize)> {
        let row = self.rows.first()?;
        let has_line = lines.iter().any(|line| ChecksumRow::from_line(&line.text) == *row);
        if has_line {
            return None;
        }
        let first = lines.get(at)?;
        // The damaged byte may have become a line break.
        let joined = lines.get(at + 1).map(|second| {
            [first.text.as_slice(), first.ending.bytes(), second.text.as_slice()].concat()
        });
        let candidates = [(Some(first.text.clone()), 1), (joined, 2)];
        candidates.into_iter().find_map(|(text, count)| Some((fix_one_byte(text?, *row)?, count)))
    }
}

/// The header with this checksum that differs from a line in one byte.
fn fix_one_byte(mut line: Vec<u8>, row: ChecksumRow) -> Option<Vec<u8>> {
    /// Longest line that is tried: each byte costs 255 checksums of the whole line.
    const MAX_BYTES: usize = 4_096;
    if line.len() > MAX_BYTES || ChecksumRow::from_line(&line).length_bytes != row.length_bytes {
        return None;
    }
    for at in 0..line.len() {
        let original = *line.get(at)?;
        for byte in (0..=u8::MAX).filter(|byte| *byte != original) {
            *line.get_mut(at)? = byte;
            if ChecksumRow::from_line(&line) == row && is_header(&line) {
                return Some(line);
            }
        }
        *line.get_mut(at)? = original;
    }
    None
}

fn is_header(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| SessionHeader::parse(text).is_ok())
}
