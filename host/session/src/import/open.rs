//! A recording of any format, opened as a session in memory.

use std::path::{Path, PathBuf};

use ctxhost_files::LongLine;

use super::{
    ImportError, ImportFormat, ImportProblem, ImportedTranscript, detect, import_messages,
};
use crate::{RecordBody, Session, SessionError, SessionHeader};

/// A recording, opened.
#[derive(Debug)]
pub struct ImportedSession {
    /// The session. In memory: nothing done to it reaches the recording.
    pub session: Session,
    /// The format it was found in, with the version of a Pi session: `pi-v3`, `claude-code`, …
    pub format: String,
    /// The window that the recording names for its model, in provider tokens.
    pub window_tokens: Option<u64>,
    /// The lines that could not be read.
    pub problems: Vec<ImportProblem>,
}

/// Why a recording could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ImportOpenError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is in no known format, or nothing usable is in it.
    #[error("{}: {source}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ImportError,
    },
    /// A line is too long to be read, and nothing usable is in the others.
    #[error("{}, line {}: {}", path.display(), line.line, line.message())]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line.
        line: LongLine,
    },
    /// It is a Pi session, but not a usable one.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Opens a recording of any format. The file is read and never written.
///
/// # Errors
///
/// [`ImportOpenError`] where the file cannot be read or holds no session of a known format.
pub fn open_file(path: &Path) -> Result<ImportedSession, ImportOpenError> {
    let unreadable = |source| ImportOpenError::Unreadable { path: path.into(), source };
    let lines = ctxhost_files::read_lines(path).map_err(unreadable)?;
    let name = path.display().to_string();
    let mut recorded =
        open_bytes(&name, &lines.bytes).map_err(|error| match lines.long.first() {
            Some(long) => ImportOpenError::LongLine { path: path.into(), line: *long },
            None => error,
        })?;
    let left_out =
        |long: &LongLine| ImportProblem { line: long.line as u64, message: long.message() };
    recorded.problems.extend(lines.long.iter().map(left_out));
    recorded.problems.sort_by_key(|problem| problem.line);
    Ok(recorded)
}

/// Opens the bytes of a recording of any format. Errors call it by `name`.
///
/// # Errors
///
/// [`ImportOpenError`] where the bytes are no session of a known format.
pub fn open_bytes(name: &str, bytes: &[u8]) -> Result<ImportedSession, ImportOpenError> {
    let unusable = |source| ImportOpenError::Recording { path: name.into(), source };
    match detect(bytes).map_err(unusable)? {
        ImportFormat::Pi => Ok(read_pi(name, bytes)?),
        foreign => Ok(opened(foreign, import_messages(foreign, bytes).map_err(unusable)?)?),
    }
}

fn read_pi(name: &str, bytes: &[u8]) -> Result<ImportedSession, SessionError> {
    let session = Session::parse(name, bytes)?;
    let version = session.migrated_from().unwrap_or_else(|| session.header().version());
    let problems = session.problems().iter();
    let problems =
        problems.map(|p| ImportProblem { line: p.line as u64, message: p.message.clone() });
    let problems = problems.collect();
    let format = format!("pi-v{version}");
    Ok(ImportedSession { session, format, window_tokens: None, problems })
}

fn opened(
    format: ImportFormat,
    imported: ImportedTranscript,
) -> Result<ImportedSession, SessionError> {
    let problems = imported.problems.clone();
    let window_tokens = imported.window_tokens;
    let session = in_memory(imported)?;
    Ok(ImportedSession { session, format: format.name().to_owned(), window_tokens, problems })
}

fn in_memory(imported: ImportedTranscript) -> Result<Session, SessionError> {
    let began_ms = imported.messages.first().map_or(0, |message| message.timestamp_ms);
    let id = (!imported.id.is_empty()).then_some(imported.id.as_str());
    // Without an id of its own a recording gets a fixed one, so that two replays are the same.
    let header = SessionHeader::new(Some(id.unwrap_or("recording")), &imported.cwd, began_ms);
    let mut session = Session::in_memory(header);
    if let Some((provider, model)) = &imported.model {
        session.append_at(RecordBody::model_change(provider, model), began_ms)?;
    }
    for message in imported.messages {
        let body = RecordBody::message(&message.message.to_string())?;
        session.append_at(body, message.timestamp_ms)?;
    }
    Ok(session)
}
