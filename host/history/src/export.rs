//! Exports a branch as JSON Lines or Markdown.

mod markdown;

use std::io::{self, Write as _};
use std::path::Path;

use super::compactions::compactions;
use super::error::HistoryError;
use super::redact::{RedactionCounts, SessionRedactor};
use ctxhost_platform::files::{LinkPolicy, open_options};
use ctxhost_session::{Record, RecordKind, Session};
use markdown::render_markdown;

/// An exported branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionExport {
    /// The lines of a session file: the header and one line per record.
    pub lines: Vec<String>,
    /// Number of messages.
    pub messages: usize,
    /// Number of compactions.
    pub compactions: usize,
    /// What was redacted; `None` without redaction.
    pub replaced: Option<RedactionCounts>,
}

/// Exports the whole branch, including compacted entries.
pub fn export_branch(session: &Session, is_redacted: bool) -> SessionExport {
    let branch = session.branch();
    let lines = std::iter::once(session.header().line()).chain(branch.iter().map(|r| r.line()));
    let (lines, replaced) = if is_redacted {
        let mut redactor = SessionRedactor::default();
        (redactor.redact_lines(lines), Some(redactor.counts()))
    } else {
        (lines.map(str::to_owned).collect(), None)
    };
    let is_message = |record: &&&Record| *record.kind() == RecordKind::Message;
    SessionExport {
        lines,
        messages: branch.iter().filter(is_message).count(),
        compactions: compactions(session).len(),
        replaced,
    }
}

impl SessionExport {
    /// The export as JSON Lines, which is a valid session file.
    pub fn to_json_lines(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The export as Markdown.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Session`] if the header is invalid.
    pub fn to_markdown(&self) -> Result<String, HistoryError> {
        // From the exported lines, which are redacted if requested.
        Ok(render_markdown(&Session::parse("export", self.to_json_lines().as_bytes())?))
    }
}

/// Writes a new file with mode 0600.
///
/// # Errors
///
/// [`HistoryError::AlreadyExists`] and [`HistoryError::Unwritable`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), HistoryError> {
    let unwritable = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => HistoryError::AlreadyExists { path: path.to_owned() },
        _ => HistoryError::Unwritable { path: path.to_owned(), source },
    };
    let mut options = open_options(LinkPolicy::Follow);
    let mut file = options.write(true).create_new(true).open(path).map_err(unwritable)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(unwritable)
}
