//! Comparison of the lines of a file with the checksums of the lines that were written.
//!
//! Rows are matched to lines by content, not by position, so that one lost line is one fault. A line without a
//! row was written by another program, unless it is where a row has no line.

use std::collections::{HashMap, HashSet, VecDeque};

use super::fault::{FaultKind, SessionFault};
use crate::journal::checksums::ChecksumRow;
use crate::lines::split_lines;
use crate::record::Record;

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChecksumComparison {
    pub(super) faults: Vec<SessionFault>,
    /// Number of lines without a checksum.
    pub(super) unknown_lines: usize,
}

struct ComparedLine<'a> {
    /// Counted from 1.
    number: usize,
    text: &'a [u8],
    is_known: bool,
}

impl ChecksumComparison {
    /// Compares the bytes of a file with the rows of the lines written to it.
    pub(super) fn compare(rows: &[ChecksumRow], bytes: &[u8]) -> ChecksumComparison {
        let numbered = split_lines(bytes).enumerate().map(|(at, (text, _))| (at + 1, text));
        let covered = numbered.filter(|(_, text)| !text.trim_ascii().is_empty());
        let mut lines: Vec<ComparedLine<'_>> =
            covered.map(|(number, text)| ComparedLine { number, text, is_known: false }).collect();
        let line_indexes = match_lines(rows, &mut lines);
        let faults = find_faults(rows, &line_indexes, &mut lines);
        let unknown_lines = lines.iter().filter(|line| !line.is_known).count();
        ChecksumComparison { faults, unknown_lines }
    }
}

/// For each row, the index of its line.
fn match_lines(rows: &[ChecksumRow], lines: &mut [ComparedLine<'_>]) -> Vec<Option<usize>> {
    let mut free: HashMap<ChecksumRow, VecDeque<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        free.entry(ChecksumRow::from_line(line.text)).or_default().push_back(at);
    }
    let mut take = |row| {
        // Equal lines are matched in order, so that none of them counts as moved.
        let at = free.get_mut(row)?.pop_front()?;
        lines.get_mut(at)?.is_known = true;
        Some(at)
    };
    rows.iter().map(&mut take).collect()
}

fn find_faults(
    rows: &[ChecksumRow],
    line_indexes: &[Option<usize>],
    lines: &mut [ComparedLine<'_>],
) -> Vec<SessionFault> {
    let mut faults = Vec::new();
    let moved = moved_rows(line_indexes);
    let mut unmatched = UnmatchedLines::new(lines);
    let mut next = 0;
    for (at, (row, line_index)) in rows.iter().zip(line_indexes).enumerate() {
        match *line_index {
            Some(index) if moved.contains(&at) => faults.extend(lines.get(index).map(|line| {
                let message = "the line is not where it was written".to_owned();
                line_fault(line, FaultKind::Reordered, message)
            })),
            Some(index) => next = index + 1,
            None => match unmatched.changed_line(*row, next) {
                Some(index) => {
                    next = index + 1;
                    let line = lines.get_mut(index).into_iter();
                    faults.extend(line.map(|line| {
                        line.is_known = true;
                        let message = "the line differs from its checksum".to_owned();
                        line_fault(line, FaultKind::Changed, message)
                    }));
                }
                None => faults.push(missing_line(lines, next)),
            },
        }
    }
    faults
}

/// The lines that no row matches.
struct UnmatchedLines {
    /// For each line, the next one that a row matches; the number of lines after the last of them.
    gap_ends: Vec<usize>,
    by_length: HashMap<u32, VecDeque<usize>>,
}

impl UnmatchedLines {
    fn new(lines: &[ComparedLine<'_>]) -> UnmatchedLines {
        let mut gap_ends = vec![lines.len(); lines.len()];
        let mut end = lines.len();
        let mut by_length: HashMap<u32, VecDeque<usize>> = HashMap::new();
        for (at, (line, gap_end)) in lines.iter().zip(&mut gap_ends).enumerate().rev() {
            if line.is_known {
                end = at;
            } else {
                let length = ChecksumRow::from_line(line.text).length_bytes;
                by_length.entry(length).or_default().push_front(at);
            }
            *gap_end = end;
        }
        UnmatchedLines { gap_ends, by_length }
    }

    /// The line of a row without a match, in the gap that begins at `from`, which never decreases.
    fn changed_line(&mut self, row: ChecksumRow, from: usize) -> Option<usize> {
        let gap = from..*self.gap_ends.get(from)?;
        // Bit rot does not change the length, so a line of the same length is preferred.
        let same_length = self.by_length.get_mut(&row.length_bytes).and_then(|lines| {
            while lines.front().is_some_and(|at| *at < from) {
                lines.pop_front();
            }
            lines.front().copied().filter(|at| gap.contains(at))
        });
        same_length.or((!gap.is_empty()).then_some(from))
    }
}

/// The smallest set of rows whose lines moved: those outside the longest increasing subsequence of lines.
fn moved_rows(line_indexes: &[Option<usize>]) -> HashSet<usize> {
    let found: Vec<(usize, usize)> =
        line_indexes.iter().enumerate().filter_map(|(row, line)| Some((row, (*line)?))).collect();
    // For each length of an increasing subsequence, the smallest last line, as an index into `found`.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(found.len());
    let line_at = |index: usize| found.get(index).map_or(0, |(_, line)| *line);
    for (index, (_, line)) in found.iter().enumerate() {
        let length = ends.partition_point(|end| line_at(*end) < *line);
        before.push(length.checked_sub(1).and_then(|shorter| ends.get(shorter).copied()));
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut moved: HashSet<usize> = found.iter().map(|(row, _)| *row).collect();
    let mut at = ends.last().copied();
    while let Some(index) = at {
        found.get(index).map(|(row, _)| moved.remove(row));
        at = before.get(index).copied().flatten();
    }
    moved
}

fn line_fault(line: &ComparedLine<'_>, kind: FaultKind, message: String) -> SessionFault {
    let text = std::str::from_utf8(line.text).ok();
    let record = text.and_then(|text| Record::parse(text).ok());
    let record = record.map(|parsed| parsed.record.id().to_owned());
    SessionFault { line: line.number, kind, record, message }
}

/// The fault of a missing line, reported at the line that is there now.
fn missing_line(lines: &[ComparedLine<'_>], at: usize) -> SessionFault {
    let after_last = lines.last().map_or(1, |line| line.number + 1);
    let line = lines.get(at).map_or(after_last, |line| line.number);
    let message = if at < lines.len() {
        "a line before it is missing (checksum)"
    } else {
        "the line that was written here is missing (checksum)"
    };
    SessionFault { line, kind: FaultKind::MissingLine, record: None, message: message.to_owned() }
}
