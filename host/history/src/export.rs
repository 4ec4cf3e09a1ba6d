//! Exports a branch as JSON Lines or Markdown.

mod markdown;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::compactions::compactions;
use super::error::HistoryError;
use super::redact::{RedactionCounts, SessionRedactor};
use ctxhost_platform::files::{LinkPolicy, open_options};
use ctxhost_session::{Record, RecordKind, Session};
use markdown::render_markdown;

/// What an export contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportCounts {
    /// Number of messages.
    pub messages: usize,
    /// Number of compactions.
    pub compactions: usize,
    /// What was redacted; `None` without redaction.
    pub replaced: Option<RedactionCounts>,
}

/// Passes the whole branch, including compacted entries, as the lines of a valid session file: the header and
/// one line per record, each with its line end. One line is in memory at a time.
///
/// # Errors
///
/// The first error of `write`, which ends the export.
pub fn export_branch<E>(
    session: &Session,
    is_redacted: bool,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<ExportCounts, E> {
    let branch = session.branch();
    let lines = std::iter::once(session.header().line()).chain(branch.iter().map(|r| r.line()));
    let mut write_line = |line: &str| write(&format!("{}\n", line.trim_end()));
    let replaced = if is_redacted {
        Some(SessionRedactor::default().redact_lines(lines, write_line)?)
    } else {
        for line in lines {
            write_line(line)?;
        }
        None
    };
    let is_message = |record: &&&Record| *record.kind() == RecordKind::Message;
    Ok(ExportCounts {
        messages: branch.iter().filter(is_message).count(),
        compactions: compactions(session).len(),
        replaced,
    })
}

/// The export as Markdown.
///
/// # Errors
///
/// [`HistoryError::Session`] if the header is invalid.
pub fn export_markdown(
    session: &Session,
    is_redacted: bool,
) -> Result<(String, ExportCounts), HistoryError> {
    let mut lines = String::new();
    let counts = export_branch(session, is_redacted, |line| {
        lines.push_str(line);
        Ok::<(), HistoryError>(())
    })?;
    // From the exported lines, which are redacted if requested.
    Ok((render_markdown(&Session::parse("export", lines.as_bytes())?), counts))
}

/// Creates a file with mode 0600 for `write`, which is deleted again if it cannot be written whole.
///
/// # Errors
///
/// [`HistoryError::AlreadyExists`] and [`HistoryError::Unwritable`].
pub fn write_new<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, HistoryError> {
    let unwritable = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => HistoryError::AlreadyExists { path: path.to_owned() },
        _ => HistoryError::Unwritable { path: path.to_owned(), source },
    };
    let mut options = open_options(LinkPolicy::Follow);
    let file = options.write(true).create_new(true).open(path).map_err(unwritable)?;
    let mut file = BufWriter::new(file);
    let written = write(&mut file).and_then(|written| {
        file.flush().and_then(|()| file.get_ref().sync_all()).map(|()| written)
    });
    written.map_err(|error| {
        // Half of an export would be taken for the whole, and the next attempt would be refused.
        let _ = std::fs::remove_file(path);
        unwritable(error)
    })
}
