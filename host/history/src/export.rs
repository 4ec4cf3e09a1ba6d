//! A branch as one document: to keep, to read, to share.

mod markdown;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::compactions::compactions;
use super::error::HistoryError;
use super::redact::{RedactionCounts, SessionRedactor};
use ctxhost_session::{Record, RecordKind, Session};
use markdown::render_markdown;

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionExport {
    /// The branch as a session file: its header, and a line for every record.
    pub lines: Vec<String>,
    /// How many messages.
    pub messages: usize,
    /// How many compactions.
    pub compactions: usize,
    /// What was replaced; `None` where nothing should be.
    pub replaced: Option<RedactionCounts>,
}

/// The whole branch, compactions and what they folded away among it.
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
    /// As JSON Lines: a session again, for every command and for Pi.
    pub fn to_json_lines(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// As a page to read.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Session`] where the header is none.
    pub fn to_markdown(&self) -> Result<String, HistoryError> {
        Ok(render_markdown(&Session::parse("export", self.to_json_lines().as_bytes())?))
    }
}

/// Writes a file that must not be there yet, readable by its owner only.
///
/// # Errors
///
/// [`HistoryError::AlreadyExists`] and [`HistoryError::Unwritable`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), HistoryError> {
    let unwritable = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => HistoryError::AlreadyExists { path: path.to_owned() },
        _ => HistoryError::Unwritable { path: path.to_owned(), source },
    };
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(unwritable)
}
