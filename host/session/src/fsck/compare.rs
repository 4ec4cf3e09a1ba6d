//! Lines held against the checksums of what was written, in order.
//!
//! Rows and lines are matched by content, not by place, so that one lost line is one fault and not one
//! for each line behind it. Lines without a row are another program's, unless they stand where a row
//! finds nothing.

use std::collections::{HashMap, HashSet, VecDeque};

use super::fault::{FaultKind, SessionFault};
use crate::journal::checksums::ChecksumRow;
use crate::lines::split_lines;
use crate::record::Record;

/// What checksums say of the lines of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChecksumComparison {
    pub(super) faults: Vec<SessionFault>,
    /// Lines that no checksum is known of.
    pub(super) unknown_lines: usize,
}

struct ComparedLine<'a> {
    /// Counted from 1.
    number: usize,
    text: &'a [u8],
    is_known: bool,
}

impl ChecksumComparison {
    /// Holds the bytes of a file against the rows of what was written to it.
    pub(super) fn compare(rows: &[ChecksumRow], bytes: &[u8]) -> ChecksumComparison {
        let numbered = split_lines(bytes).enumerate().map(|(at, (text, _))| (at + 1, text));
        let covered = numbered.filter(|(_, text)| !text.trim_ascii().is_empty());
        let mut lines: Vec<ComparedLine<'_>> =
            covered.map(|(number, text)| ComparedLine { number, text, is_known: false }).collect();
        let places = places(rows, &mut lines);
        let faults = faults(rows, &places, &mut lines);
        let unknown_lines = lines.iter().filter(|line| !line.is_known).count();
        ChecksumComparison { faults, unknown_lines }
    }
}

/// Where the line of each row stands among the lines.
fn places(rows: &[ChecksumRow], lines: &mut [ComparedLine<'_>]) -> Vec<Option<usize>> {
    let mut free: HashMap<ChecksumRow, VecDeque<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        free.entry(ChecksumRow::from_line(line.text)).or_default().push_back(at);
    }
    let mut take = |row| {
        let at = free.get_mut(row)?.pop_front()?;
        lines.get_mut(at)?.is_known = true;
        Some(at)
    };
    rows.iter().map(&mut take).collect()
}

fn faults(
    rows: &[ChecksumRow],
    places: &[Option<usize>],
    lines: &mut [ComparedLine<'_>],
) -> Vec<SessionFault> {
    let mut faults = Vec::new();
    let moved = moved(places);
    let mut next = 0;
    for (at, (row, place)) in rows.iter().zip(places).enumerate() {
        match *place {
            Some(place) if moved.contains(&at) => faults.extend(lines.get(place).map(|line| {
                let message = "it stands elsewhere than it was written".to_owned();
                fault(line, FaultKind::Reordered, message)
            })),
            Some(place) => next = place + 1,
            None => match changed(*row, lines, next) {
                Some(place) => {
                    next = place + 1;
                    let line = lines.get_mut(place).into_iter();
                    faults.extend(line.map(|line| {
                        line.is_known = true;
                        let message = "it is not what was written (checksum)".to_owned();
                        fault(line, FaultKind::Changed, message)
                    }));
                }
                None => faults.push(missing(lines, next)),
            },
        }
    }
    faults
}

/// Which line may be what became of a row: one of those up to the next known line, of the same length
/// where there is one, since rot changes bits and no lengths.
fn changed(row: ChecksumRow, lines: &[ComparedLine<'_>], from: usize) -> Option<usize> {
    let gap = lines.iter().enumerate().skip(from).take_while(|(_, line)| !line.is_known);
    let same_length =
        gap.clone().find(|(_, line)| ChecksumRow::from_line(line.text).is_as_long_as(row));
    same_length.or_else(|| gap.into_iter().next()).map(|(place, _)| place)
}

/// The fewest rows whose lines stand elsewhere: those outside the longest run of rows whose places
/// grow.
fn moved(places: &[Option<usize>]) -> HashSet<usize> {
    let found: Vec<(usize, usize)> =
        places.iter().enumerate().filter_map(|(row, place)| Some((row, (*place)?))).collect();
    // By length of a growing run: its smallest last place, as an index into `found`.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(found.len());
    let place_of = |index: usize| found.get(index).map_or(0, |(_, place)| *place);
    for (index, (_, place)) in found.iter().enumerate() {
        let length = ends.partition_point(|end| place_of(*end) < *place);
        before.push(length.checked_sub(1).and_then(|shorter| ends.get(shorter).copied()));
        ends.truncate(length.max(ends.len()));
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

fn fault(line: &ComparedLine<'_>, kind: FaultKind, message: String) -> SessionFault {
    let text = std::str::from_utf8(line.text).ok();
    let record = text.and_then(|text| Record::parse(text).ok());
    let record = record.map(|parsed| parsed.record.id().to_owned());
    SessionFault { line: line.number, kind, record, message }
}

/// A line that was written and is gone, told at the line that stands there now.
fn missing(lines: &[ComparedLine<'_>], at: usize) -> SessionFault {
    let after_last = lines.last().map_or(1, |line| line.number + 1);
    let line = lines.get(at).map_or(after_last, |line| line.number);
    let message = match at < lines.len() {
        true => "a line that was written before it is gone (checksum)",
        false => "the line that was written here is gone (checksum)",
    };
    SessionFault { line, kind: FaultKind::MissingLine, record: None, message: message.to_owned() }
}
