//! The lines of a session that can be mended: a header that cannot be read, and lines that one damaged byte
//! has joined.

use std::path::Path;

use super::Checkup;
use super::fault::FaultKind;
use super::glued::pieces;
use super::salvage;
use crate::error::SessionError;
use crate::header::Header;
use crate::journal::Journal;
use crate::journal::checksums::{Row, Rows};
use crate::lines::{Ending, split};
use crate::parse::{LineText, json_line};
use crate::record::is_of_a_session;

/// A session file as it should be.
struct Mended {
    bytes: Vec<u8>,
    /// The damaged lines, as they were.
    damaged: Vec<u8>,
    rows: Vec<Row>,
    said: Vec<String>,
}

/// Mends what can be mended of a file; says what was done. The damaged lines are kept beside it.
pub(super) fn mend(found: &Checkup) -> Vec<String> {
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
        let rows = Rows::read_beside(&found.path).unwrap_or_default();
        let Some(mended) = mended(&found.path, &lines.bytes, rows.rows) else {
            return Ok(Vec::new());
        };
        let aside = journal.mend(&mended.bytes, &mended.damaged, &mended.rows)?;
        let mut said = mended.said;
        if !mended.damaged.is_empty() {
            said.push(format!("what stood there before was kept in {}", aside.display()));
        }
        Ok(said)
    };
    done().unwrap_or_else(|error| vec![format!("not repaired: {error}")])
}

/// A line as it will be written.
struct Line {
    text: Vec<u8>,
    ending: Ending,
}

fn mended(path: &Path, bytes: &[u8], rows: Vec<Row>) -> Option<Mended> {
    let (mut damaged, mut said) = (Vec::new(), Vec::new());
    let mut lines = Vec::new();
    for (at, (text, ending)) in split(bytes).enumerate() {
        let is_bad = matches!(json_line(text), LineText::Bad(_));
        let Some(pieces) = is_bad.then(|| pieces(text)).flatten() else {
            lines.push(Line { text: text.to_owned(), ending });
            continue;
        };
        damaged.extend_from_slice(text);
        damaged.extend_from_slice(b"\n");
        said.push(format!("line {} was written anew, as {} lines", at + 1, pieces.len()));
        let ending = if ending == Ending::Missing { Ending::Lf } else { ending };
        lines.extend(pieces.iter().map(|piece| Line { text: piece.as_bytes().to_owned(), ending }));
    }
    let mut mended = Mended { bytes: Vec::new(), damaged, rows, said };
    mended.header(path, &mut lines);
    if mended.said.is_empty() {
        return None;
    }
    for line in lines {
        mended.bytes.extend_from_slice(&line.text);
        mended.bytes.extend_from_slice(line.ending.bytes());
    }
    Some(mended)
}

impl Mended {
    fn header(&mut self, path: &Path, lines: &mut Vec<Line>) {
        let Some(at) = lines.iter().position(|line| !line.text.trim_ascii().is_empty()) else {
            return;
        };
        if let Some((header, taken)) = self.proven(at, lines) {
            self.replace(at, taken, &header, lines);
            self.said
                .push(format!("line {}: the header was restored, as its checksum says", at + 1));
            return;
        }
        let first = lines.iter().map(|line| json_line(&line.text)).find_map(|text| match text {
            LineText::Json(text) => Some(text),
            LineText::Blank | LineText::Bad(_) => None,
        });
        let is_known = |text: &str| Header::parse(text).is_ok() || Header::is_of_version_0(text);
        let texts = lines.iter().filter_map(|line| std::str::from_utf8(&line.text).ok());
        let records: Vec<&str> = texts.filter(|text| is_of_a_session(text)).collect();
        if first.is_some_and(is_known) || records.is_empty() {
            return;
        }
        let old = lines.get(at).map(|line| String::from_utf8_lossy(&line.text).into_owned());
        let old = old.unwrap_or_default();
        // Only a record names its parent, and a damaged one is no header.
        let is_record = old.contains("parentId") || is_of_a_session(&old);
        let left = if is_record { "" } else { old.as_str() };
        let known =
            lines.iter().find_map(|line| Header::parse(str::from_utf8(&line.text).ok()?).ok());
        let Some(header) = known.or_else(|| salvage::header(left, path, &records)) else { return };
        self.said.push(format!(
            "line {}: the header was written anew, the session has the id {}",
            at + 1,
            header.id()
        ));
        self.replace(at, usize::from(!is_record), header.line().as_bytes(), lines);
    }

    /// Puts a header in the place of so many lines.
    fn replace(&mut self, at: usize, taken: usize, header: &[u8], lines: &mut Vec<Line>) {
        let ending = lines.get(at).map_or(Ending::Lf, |line| line.ending);
        let ending = if ending == Ending::Missing { Ending::Lf } else { ending };
        let old: Vec<Line> = lines.drain(at..(at + taken).min(lines.len())).collect();
        for line in &old {
            self.damaged.extend_from_slice(&line.text);
            self.damaged.extend_from_slice(line.ending.bytes());
        }
        // A header that stands further down is this one.
        lines.retain(|line| line.text != header);
        lines.insert(at, Line { text: header.to_owned(), ending });
        let row = Row::of(header);
        if self.rows.is_empty() || self.rows.contains(&row) {
            return;
        }
        let is_of_a_line = |row: &Row| lines.iter().any(|line| Row::of(&line.text) == *row);
        match self.rows.first_mut() {
            Some(first) if !is_of_a_line(first) => *first = row,
            _ => self.rows.insert(0, row),
        }
    }

    /// The header that the first checksum is of, where one damaged byte is all that is wrong with it, and how
    /// many lines it stood on: the byte may have become a line break.
    fn proven(&self, at: usize, lines: &[Line]) -> Option<(Vec<u8>, usize)> {
        let row = self.rows.first()?;
        let is_there = lines.iter().any(|line| Row::of(&line.text) == *row);
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
fn one_byte_away(mut line: Vec<u8>, row: Row) -> Option<Vec<u8>> {
    /// Bytes of a header that are tried; each costs 255 checksums of all of them.
    const MOST_BYTES: usize = 4_096;
    if line.len() > MOST_BYTES || !Row::of(&line).is_as_long_as(row) {
        return None;
    }
    for at in 0..line.len() {
        let was = *line.get(at)?;
        for byte in (0..=u8::MAX).filter(|byte| *byte != was) {
            *line.get_mut(at)? = byte;
            if Row::of(&line) == row && is_header(&line) {
                return Some(line);
            }
        }
        *line.get_mut(at)? = was;
    }
    None
}

fn is_header(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| Header::parse(text).is_ok())
}
