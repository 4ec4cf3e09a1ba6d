//! Bytes become the contents of a session; what is wrong with a line is noted, never fatal.

use serde::de::IgnoredAny;

use ctxhost_files::{Lines, LongLine};

use super::contents::{Content, Contents, Line};
use super::cut_short;
use super::error::{LineFault, LineProblem, SessionError};
use super::header::{Header, SESSION_VERSION};
use super::lines::{Ending, split};
use super::migrate::Migration;
use super::record::{self, ParsedRecord, Record};

/// The contents of a file of any version.
///
/// # Errors
///
/// [`SessionError::Header`] where this is no session, [`SessionError::DamagedHeader`] where it is one whose
/// header cannot be read.
pub(super) fn contents(name: &str, bytes: &[u8]) -> Result<Contents, SessionError> {
    read(name, bytes, &[])
}

/// The contents of a file of which the lines that are too long were left out.
///
/// # Errors
///
/// As [`contents`].
pub(super) fn lines(name: &str, lines: &Lines) -> Result<Contents, SessionError> {
    read(name, &lines.bytes, &lines.long)
}

fn read(name: &str, bytes: &[u8], long: &[LongLine]) -> Result<Contents, SessionError> {
    let long_at = |at: usize| long.iter().find(|line| line.line == at + 1);
    let mut header = None;
    let mut before_header = Vec::new();
    let mut lines = split(bytes).enumerate();
    for (at, (line, ending)) in lines.by_ref() {
        match json_line(line) {
            LineText::Json(text) => {
                let parsed = Header::parse(text).map_err(|reason| {
                    header_error(name, bytes, (at, text, reason), &before_header)
                })?;
                header = Some((parsed, at, ending));
                break;
            }
            LineText::Blank => before_header.push((at, line, ending, None)),
            LineText::Bad(message) => before_header.push((at, line, ending, Some(message))),
        }
    }
    let Some((header, header_at, header_ending)) = header else {
        let reason = "it holds no readable record".to_owned();
        return Err(SessionError::Header { name: name.to_owned(), reason });
    };
    let mut reader = Reader::new(&header, header_at);
    for (at, line, ending, problem) in before_header {
        reader.keep(at, line, ending, problem.map(|message| (LineFault::Bad, message)));
    }
    reader.contents.lines.push(Line { content: Content::Header, ending: header_ending });
    for (at, (line, ending)) in lines {
        match long_at(at) {
            Some(long) => reader.long_line(*long, ending),
            None => reader.line(at, line, ending),
        }
    }
    // A last one without its line break leaves nothing among the bytes.
    let lines_there = reader.contents.lines.len();
    for long in long.iter().filter(|long| long.line > lines_there) {
        reader.long_line(*long, Ending::Missing);
    }
    reader.contents.problems.sort_by_key(|problem| problem.line);
    cut_short::leave_half_undone(&mut reader.contents);
    reader.contents.find_first_task();
    Ok(reader.contents)
}

/// Adds lines that were written behind the known ones.
pub(super) fn more(contents: &mut Contents, bytes: &[u8]) {
    let known = std::mem::replace(contents, Contents::new(contents.header.clone()));
    let first = known.lines.len();
    let mut reader = Reader { contents: known, migration: Migration::new(SESSION_VERSION) };
    for (at, (line, ending)) in split(bytes).enumerate() {
        reader.line(first + at, line, ending);
    }
    *contents = reader.contents;
    contents.find_first_task();
}

struct Reader {
    contents: Contents,
    migration: Migration,
}

impl Reader {
    fn new(header: &Header, header_at: usize) -> Reader {
        let version = header.version();
        let is_older = version < SESSION_VERSION;
        let mut contents = Contents::new(if is_older { header.migrated() } else { header.clone() });
        contents.lines.clear();
        contents.migrated_from = is_older.then_some(version);
        let mut reader = Reader { contents, migration: Migration::new(version) };
        if version > SESSION_VERSION {
            let message = format!("version {version} is newer than {SESSION_VERSION}: read only");
            reader.note(header_at, LineFault::Header, message);
        }
        if header.id().is_empty() {
            reader.note(header_at, LineFault::Header, "the header has no id".to_owned());
        }
        reader
    }

    fn line(&mut self, at: usize, line: &[u8], ending: Ending) {
        match json_line(line) {
            LineText::Blank => self.keep(at, line, ending, None),
            LineText::Json(text) => self.record(at, text, ending),
            LineText::Bad(message) if ending == Ending::Missing => {
                let message = format!("the last write was cut short, left out: {message}");
                self.note(at, LineFault::Torn, message);
                let content = Content::Torn(line.to_vec());
                self.contents.lines.push(Line { content, ending });
            }
            LineText::Bad(message) => {
                let message = format!("left out: {message}");
                self.keep(at, line, ending, Some((LineFault::Bad, message)));
            }
        }
    }

    fn long_line(&mut self, line: LongLine, ending: Ending) {
        self.note(line.line - 1, LineFault::Bad, format!("left out: {}", line.message()));
        let content = Content::TooLong { length_bytes: line.length_bytes };
        self.contents.lines.push(Line { content, ending });
    }

    fn record(&mut self, at: usize, text: &str, ending: Ending) {
        let migrated = self.migration.line(text);
        match Record::parse(&migrated) {
            Ok(parsed) if self.contents.tree.contains(parsed.record.id()) => {
                let message = format!("the id `{}` is taken, left out", parsed.record.id());
                self.keep(at, text.as_bytes(), ending, Some((LineFault::TakenId, message)));
            }
            Ok(parsed) => self.link(at, parsed, ending),
            Err(reason) => {
                let message = format!("left out: {reason}");
                self.keep(at, text.as_bytes(), ending, Some((LineFault::Bad, message)));
            }
        }
    }

    /// Puts a record into the tree.
    ///
    /// Where its parent is not there (as a rule: on the bad line before), the record before it in
    /// the file stands in, so that one broken line does not hide all that was said earlier.
    fn link(&mut self, at: usize, parsed: ParsedRecord, ending: Ending) {
        let ParsedRecord { record, names_parent } = parsed;
        let before = self.contents.records.len().checked_sub(1);
        let parent = match record.parent_id() {
            None if names_parent => None,
            None => {
                let message = "it names no parent: taken to follow the record before".to_owned();
                self.note(at, LineFault::NoParent, message);
                before
            }
            Some(id) => self.contents.tree.position(id).or_else(|| {
                let message =
                    format!("its parent `{id}` is not above: taken to follow the record before");
                let fault = LineFault::NoParent;
                self.contents.problems.push(LineProblem { line: at + 1, fault, message });
                before
            }),
        };
        let content = Content::Record(self.contents.records.len());
        self.contents.lines.push(Line { content, ending });
        self.contents.tree.push(&record, parent);
        self.contents.records.push(record);
    }

    fn keep(
        &mut self,
        at: usize,
        line: &[u8],
        ending: Ending,
        problem: Option<(LineFault, String)>,
    ) {
        if let Some((fault, message)) = problem {
            self.note(at, fault, message);
        }
        self.contents.lines.push(Line { content: Content::Kept(line.to_vec()), ending });
    }

    fn note(&mut self, at: usize, fault: LineFault, message: String) {
        self.contents.problems.push(LineProblem { line: at + 1, fault, message });
    }
}

/// What stands on a line.
pub(super) enum LineText<'a> {
    /// Nothing but white space.
    Blank,
    /// A JSON object.
    Json(&'a str),
    /// Anything else, with what is wrong with it.
    Bad(String),
}

/// Looks at a line.
pub(super) fn json_line(line: &[u8]) -> LineText<'_> {
    let Ok(text) = std::str::from_utf8(line) else {
        return LineText::Bad("not UTF-8".to_owned());
    };
    if text.trim().is_empty() {
        return LineText::Blank;
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) if text.trim_start().starts_with('{') => LineText::Json(text),
        Ok(_) => LineText::Bad("not a JSON object".to_owned()),
        // The error counts lines of its own; the line of the file is the caller's to tell.
        Err(error) => LineText::Bad(format!("not JSON from column {}", error.column())),
    }
}

/// A line before the header: its number from 0, its bytes and ending, and what is wrong with it.
type Before<'a> = (usize, &'a [u8], Ending, Option<String>);

/// Whether the header is damaged, or the file something else: records of a session tell.
fn header_error(
    name: &str,
    bytes: &[u8],
    (at, text, reason): (usize, &str, String),
    before: &[Before<'_>],
) -> SessionError {
    let name = name.to_owned();
    let lines = split(bytes).filter_map(|(line, _)| std::str::from_utf8(line).ok());
    let records = lines.filter(|line| record::is_of_a_session(line)).count();
    if records == 0 || Header::is_of_version_0(text) {
        return SessionError::Header { name, reason };
    }
    let damaged = before.iter().find_map(|(at, _, _, problem)| Some((*at, problem.clone()?)));
    let (at, reason) = damaged.unwrap_or((at, reason));
    SessionError::DamagedHeader { name, line: at + 1, reason, records }
}
