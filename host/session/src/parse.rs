//! Parses the bytes of a session file. Invalid lines are reported, never fatal.

use serde::de::IgnoredAny;

use ctxhost_files::{FileLines, LongLine};

use super::contents::{FileLine, LineContent, SessionContents};
use super::error::{LineFault, SessionError, SessionLineProblem};
use super::header::{SESSION_VERSION, SessionHeader};
use super::lines::{LineEnding, split_lines};
use super::migration::FormatMigration;
use super::record::{self, ParsedRecord, Record, RecordKind};
use super::torn_undo;
use super::unread_message::unread_reason;

/// Parses a file of any version.
///
/// # Errors
///
/// [`SessionError::Header`] if this is not a session, [`SessionError::DamagedHeader`] if it is one with an
/// unreadable header.
pub(super) fn parse_bytes(name: &str, bytes: &[u8]) -> Result<SessionContents, SessionError> {
    read(name, bytes, &[])
}

/// Parses a file that was read without the lines above the length limit.
///
/// # Errors
///
/// As [`parse_bytes`].
pub(super) fn parse_lines(name: &str, lines: &FileLines) -> Result<SessionContents, SessionError> {
    read(name, &lines.bytes, &lines.long)
}

fn read(name: &str, bytes: &[u8], long: &[LongLine]) -> Result<SessionContents, SessionError> {
    let long_at = |at: usize| long.iter().find(|line| line.line == at + 1);
    let mut header = None;
    let mut before_header = Vec::new();
    let mut lines = split_lines(bytes).enumerate();
    for (at, (line, ending)) in lines.by_ref() {
        match classify_line(line) {
            LineClass::Json(text) => {
                let parsed = SessionHeader::parse(text).map_err(|reason| {
                    header_error(name, bytes, (at, text, reason), &before_header)
                })?;
                header = Some((parsed, at, ending));
                break;
            }
            // The header is the first readable record; damaged lines may be above it.
            LineClass::Blank => before_header.push((at, line, ending, None)),
            LineClass::Bad(message) => before_header.push((at, line, ending, Some(message))),
        }
    }
    let Some((header, header_at, header_ending)) = header else {
        let reason = "no readable record".to_owned();
        return Err(SessionError::Header { name: name.to_owned(), reason });
    };
    let mut reader = ContentsParser::new(&header, header_at);
    for (at, line, ending, problem) in before_header {
        reader.add_raw(at, line, ending, problem.map(|message| (LineFault::Bad, message)));
    }
    reader.contents.lines.push(FileLine { content: LineContent::Header, ending: header_ending });
    for (at, (line, ending)) in lines {
        match long_at(at) {
            Some(long) => reader.add_long_line(*long, ending),
            None => reader.add_line(at, line, ending),
        }
    }
    // An unterminated long last line leaves nothing among the bytes.
    let lines_there = reader.contents.lines.len();
    for long in long.iter().filter(|long| long.line > lines_there) {
        reader.add_long_line(*long, LineEnding::Missing);
    }
    reader.contents.problems.sort_by_key(|problem| problem.line);
    torn_undo::skip_torn_undo(&mut reader.contents);
    reader.contents.find_first_task();
    Ok(reader.contents)
}

/// Parses lines that follow the known ones.
pub(super) fn append_bytes(contents: &mut SessionContents, bytes: &[u8]) {
    let known = std::mem::replace(contents, SessionContents::new(contents.header.clone()));
    let first = known.lines.len();
    let mut reader =
        ContentsParser { contents: known, migration: FormatMigration::new(SESSION_VERSION) };
    for (at, (line, ending)) in split_lines(bytes).enumerate() {
        reader.add_line(first + at, line, ending);
    }
    *contents = reader.contents;
    contents.find_first_task();
}

struct ContentsParser {
    contents: SessionContents,
    migration: FormatMigration,
}

impl ContentsParser {
    fn new(header: &SessionHeader, header_at: usize) -> ContentsParser {
        let version = header.version();
        let is_older = version < SESSION_VERSION;
        let mut contents = SessionContents::new(if is_older {
            header.to_current_version()
        } else {
            header.clone()
        });
        contents.lines.clear();
        contents.migrated_from = is_older.then_some(version);
        let mut reader = ContentsParser { contents, migration: FormatMigration::new(version) };
        if version > SESSION_VERSION {
            let message = format!("version {version} is newer than {SESSION_VERSION}: read only");
            reader.add_problem(header_at, LineFault::NewerVersion, message);
        }
        if header.id().is_empty() {
            reader.add_problem(header_at, LineFault::Header, "the header has no id".to_owned());
        }
        reader
    }

    fn add_line(&mut self, at: usize, line: &[u8], ending: LineEnding) {
        match classify_line(line) {
            LineClass::Blank => self.add_raw(at, line, ending, None),
            LineClass::Json(text) => self.add_record(at, text, ending),
            // A line is written together with its line break, so only this one can be incomplete.
            LineClass::Bad(message) if ending == LineEnding::Missing => {
                let message = format!("incomplete last write, skipped: {message}");
                self.add_problem(at, LineFault::Torn, message);
                let content = LineContent::Torn(line.to_vec());
                self.contents.lines.push(FileLine { content, ending });
            }
            LineClass::Bad(message) => {
                let message = format!("skipped: {message}");
                self.add_raw(at, line, ending, Some((LineFault::Bad, message)));
            }
        }
    }

    fn add_long_line(&mut self, line: LongLine, ending: LineEnding) {
        self.add_problem(line.line - 1, LineFault::Bad, format!("skipped: {}", line.message()));
        let content = LineContent::TooLong { length_bytes: line.length_bytes };
        self.contents.lines.push(FileLine { content, ending });
    }

    fn add_record(&mut self, at: usize, text: &str, ending: LineEnding) {
        let migrated = self.migration.migrate_line(text);
        match Record::parse(&migrated) {
            Ok(parsed) if self.contents.tree.contains(parsed.record.id()) => {
                // The first one counts, because records below it may have named it as their parent.
                let message = format!("duplicate id `{}`, skipped", parsed.record.id());
                self.add_raw(at, text.as_bytes(), ending, Some((LineFault::DuplicateId, message)));
            }
            Ok(parsed) => self.link(at, parsed, ending),
            Err(reason) => {
                let message = format!("skipped: {reason}");
                self.add_raw(at, text.as_bytes(), ending, Some((LineFault::Bad, message)));
            }
        }
    }

    /// Adds a record to the tree.
    fn link(&mut self, at: usize, parsed: ParsedRecord, ending: LineEnding) {
        let ParsedRecord { record, names_parent } = parsed;
        // The parent of a record whose own is missing, usually because its line is invalid. Pi starts
        // a new root instead, which hides all earlier messages.
        let before = self.contents.records.len().checked_sub(1);
        let parent = match record.parent_id() {
            None if names_parent => None,
            None => {
                let message = "it has no parentId; attached to the preceding record".to_owned();
                self.add_problem(at, LineFault::MissingParent, message);
                before
            }
            Some(id) => self.contents.tree.position(id).or_else(|| {
                let message =
                    format!("its parent `{id}` is not above it; attached to the preceding record");
                let fault = LineFault::MissingParent;
                self.contents.problems.push(SessionLineProblem { line: at + 1, fault, message });
                before
            }),
        };
        let is_message = *record.kind() == RecordKind::Message;
        let unread = || unread_reason(record.message_raw().unwrap_or("null"));
        if let Some(reason) = is_message.then(unread).flatten() {
            self.add_problem(at, LineFault::UnreadMessage, reason);
        }
        let content = LineContent::Record(self.contents.records.len());
        self.contents.lines.push(FileLine { content, ending });
        self.contents.tree.push(&record, parent);
        self.contents.records.push(record);
    }

    fn add_raw(
        &mut self,
        at: usize,
        line: &[u8],
        ending: LineEnding,
        problem: Option<(LineFault, String)>,
    ) {
        if let Some((fault, message)) = problem {
            self.add_problem(at, fault, message);
        }
        self.contents.lines.push(FileLine { content: LineContent::Raw(line.to_vec()), ending });
    }

    fn add_problem(&mut self, at: usize, fault: LineFault, message: String) {
        self.contents.problems.push(SessionLineProblem { line: at + 1, fault, message });
    }
}

/// The kind of a line.
pub(super) enum LineClass<'a> {
    /// White space only.
    Blank,
    /// A JSON object.
    Json(&'a str),
    /// Anything else, with what is wrong with it.
    Bad(String),
}

/// Classifies a line.
pub(super) fn classify_line(line: &[u8]) -> LineClass<'_> {
    let Ok(text) = std::str::from_utf8(line) else {
        return LineClass::Bad("not UTF-8".to_owned());
    };
    if text.trim().is_empty() {
        return LineClass::Blank;
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) if text.trim_start().starts_with('{') => LineClass::Json(text),
        Ok(_) => LineClass::Bad("not a JSON object".to_owned()),
        // Its line number is always 1; the caller knows the line of the file.
        Err(error) => LineClass::Bad(format!("not JSON from column {}", error.column())),
    }
}

/// A line before the header: its number from 0, its bytes and ending, and its problem.
type LineBeforeHeader<'a> = (usize, &'a [u8], LineEnding, Option<String>);

/// The error for an invalid header: the file is a damaged session if it contains session records.
fn header_error(
    name: &str,
    bytes: &[u8],
    (at, text, reason): (usize, &str, String),
    before: &[LineBeforeHeader<'_>],
) -> SessionError {
    let name = name.to_owned();
    let lines = split_lines(bytes).filter_map(|(line, _)| std::str::from_utf8(line).ok());
    let records = lines.filter(|line| record::is_session_record(line)).count();
    if records == 0 || SessionHeader::has_version_0(text) {
        return SessionError::Header { name, reason };
    }
    let damaged = before.iter().find_map(|(at, _, _, problem)| Some((*at, problem.clone()?)));
    let (at, reason) = damaged.unwrap_or((at, reason));
    SessionError::DamagedHeader { name, line: at + 1, reason, records }
}
