//! A branch as one document: to keep, to read, to share.

mod markdown;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::compacted::compactions;
use super::error::HistoryError;
use super::redact::{Redactor, Replaced};
use ctxhost_session::{Record, RecordKind, Session};
use markdown::markdown;

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The branch as a session file: its header, and a line for every record.
    pub lines: Vec<String>,
    /// How many messages.
    pub messages: usize,
    /// How many compactions.
    pub compactions: usize,
    /// What was replaced; `None` where nothing should be.
    pub replaced: Option<Replaced>,
}

/// The whole branch, compactions and what they folded away among it.
pub fn export(session: &Session, is_redacted: bool) -> Export {
    let branch = session.branch();
    let lines = std::iter::once(session.header().line()).chain(branch.iter().map(|r| r.line()));
    let (lines, replaced) = if is_redacted {
        let mut redactor = Redactor::default();
        (redactor.lines(lines), Some(redactor.replaced()))
    } else {
        (lines.map(str::to_owned).collect(), None)
    };
    let is_message = |record: &&&Record| *record.kind() == RecordKind::Message;
    Export {
        lines,
        messages: branch.iter().filter(is_message).count(),
        compactions: compactions(session).len(),
        replaced,
    }
}

impl Export {
    /// As JSON Lines: a session again, for every command and for Pi.
    pub fn json(&self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// As a page to read.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Session`] where the header is none.
    pub fn markdown(&self) -> Result<String, HistoryError> {
        Ok(markdown(&Session::parse("export", self.json().as_bytes())?))
    }
}

/// Writes a file that must not be there yet, readable by its owner only.
///
/// # Errors
///
/// [`HistoryError::Taken`] and [`HistoryError::Unwritable`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), HistoryError> {
    let unwritable = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => HistoryError::Taken { path: path.to_owned() },
        _ => HistoryError::Unwritable { path: path.to_owned(), source },
    };
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(unwritable)
}
