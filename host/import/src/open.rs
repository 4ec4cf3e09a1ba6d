//! Opens a recording of any format as a session in memory.

use std::io;
use std::path::{Path, PathBuf};

use ctxhost_files::{FileLines, LongLine, ZstdReader, is_zstd};
use ctxhost_session::{Record, RecordBody, Session, SessionError, SessionHeader};
use serde_json::{Value, json};

use super::compaction::CompactionWriter;
use super::detect::detect;
use super::json_lines::strip_bom;
use super::surrogates::replace_halves;
use super::transcript::{ImportError, ImportFormat, ImportProblem, ImportedTranscript};
use super::{anthropic, claude_code, codex, gemini_cli, openai, opencode};

/// The type of the record that states the window of a recording.
const WINDOW_RECORD: &str = "ctxhost.window";

/// An imported recording.
#[derive(Debug)]
pub struct ImportedSession {
    /// The session, in memory: changes do not reach the recording.
    pub session: Session,
    /// The format, with the version of a Pi session: `pi-v3`, `claude-code`, …
    pub format: String,
    /// The context window that the recording names, in provider tokens.
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
        /// The error of the system.
        source: std::io::Error,
    },
    /// Its format is unknown, or it has no usable message.
    #[error("{}: {source}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ImportError,
    },
    /// A line is too long, and the others have no usable message.
    #[error("{}, line {}: {}", path.display(), line.line, line.message())]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line.
        line: LongLine,
    },
    /// It is an invalid Pi session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Converts a recording of the format found by [`detect`] to Pi messages.
///
/// # Errors
///
/// [`ImportError`] if it has no message. A line that cannot be read is an [`ImportProblem`] only.
pub fn import_messages(
    format: ImportFormat,
    bytes: &[u8],
) -> Result<ImportedTranscript, ImportError> {
    let bytes = &*replace_halves(bytes);
    match format {
        ImportFormat::Pi => Err(ImportError::Pi),
        ImportFormat::ClaudeCode => claude_code::import(bytes),
        ImportFormat::Codex => codex::import(bytes),
        ImportFormat::GeminiCli => gemini_cli::import(bytes),
        ImportFormat::OpenCode => opencode::import(bytes),
        ImportFormat::OpenAi => openai::import(bytes),
        ImportFormat::Anthropic => anthropic::import(bytes),
    }
}

/// Limit for a compressed recording: a small file can hold any number of bytes.
const DECOMPRESSED_BYTES: u64 = 512 << 20;

/// The lines of a recording, decompressed if Codex has compressed it.
fn read_lines(path: &Path) -> io::Result<FileLines> {
    let lines = ctxhost_files::read_lines(path)?;
    if !is_zstd(&lines.bytes) {
        return Ok(lines);
    }
    ctxhost_files::read_source_lines(ZstdReader::new(&lines.bytes), DECOMPRESSED_BYTES)
}

/// Opens a recording of any format, also one compressed with zstd. Of a session in opencode's storage, the files of its
/// messages are read too; one in a database of opencode or OpenClaw is named by the database and the id, as if the
/// database were a folder.
///
/// # Errors
///
/// [`ImportOpenError`] if the file cannot be read or is not a session of a known format.
pub fn open_file(path: &Path) -> Result<ImportedSession, ImportOpenError> {
    let unreadable = |source| ImportOpenError::Unreadable { path: path.into(), source };
    if let Some((database, id)) = opencode::database_of(path) {
        let stored = opencode::read_session(database, id).map_err(unreadable)?;
        return open_joined(path, &stored);
    }
    if opencode::is_database(path) {
        return Err(unreadable(several_sessions(path)));
    }
    let lines = read_lines(path).map_err(unreadable)?;
    let name = path.display().to_string();
    if let Some(stored) = opencode::read_storage(path, &lines.bytes) {
        return open_joined(path, &stored.map_err(unreadable)?);
    }
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

/// Opens a document that was put together.
fn open_joined(path: &Path, document: &[u8]) -> Result<ImportedSession, ImportOpenError> {
    let mut recorded = open_bytes(&path.display().to_string(), document)?;
    // Its lines would name nothing.
    recorded.problems.iter_mut().for_each(|problem| problem.line = 1);
    Ok(recorded)
}

/// Why a database is no session.
fn several_sessions(path: &Path) -> io::Error {
    match opencode::list_database(path) {
        Err(error) => error,
        Ok(sessions) => {
            let newest = sessions.first().map(|session| session.path.display().to_string());
            let newest = newest.map_or(String::new(), |path| format!("; the newest is {path}"));
            let reason = format!("it is a database of {} sessions{newest}", sessions.len());
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        }
    }
}

/// Opens the bytes of a recording of any format. Errors mention `name`.
///
/// # Errors
///
/// [`ImportOpenError`] if the bytes are not a session of a known format.
pub fn open_bytes(name: &str, bytes: &[u8]) -> Result<ImportedSession, ImportOpenError> {
    let unusable = |source| ImportOpenError::Recording { path: name.into(), source };
    match detect(bytes).map_err(unusable)? {
        ImportFormat::Pi => Ok(open_pi(name, strip_bom(bytes))?),
        format => Ok(open_foreign(format, import_messages(format, bytes).map_err(unusable)?)?),
    }
}

fn open_pi(name: &str, bytes: &[u8]) -> Result<ImportedSession, SessionError> {
    let session = Session::parse(name, bytes)?;
    let version = session.migrated_from().unwrap_or_else(|| session.header().version());
    let problems = session.problems().iter().map(|problem| ImportProblem {
        line: problem.line as u64,
        message: problem.message.clone(),
    });
    let problems = problems.collect();
    let format = format!("pi-v{version}");
    let window_tokens = recorded_window(&session);
    Ok(ImportedSession { session, format, window_tokens, problems })
}

/// The window of the recording from which a session was exported.
pub fn recorded_window(session: &Session) -> Option<u64> {
    let (_, data) = session.host_records(WINDOW_RECORD).last()?;
    data.get("tokens")?.as_u64().filter(|tokens| *tokens > 0)
}

impl ImportedSession {
    /// The session with a record of its window, which its other records do not state.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if the record cannot be appended.
    pub fn into_session_with_window(mut self) -> Result<Session, SessionError> {
        if let Some(tokens) =
            self.window_tokens.filter(|_| recorded_window(&self.session).is_none())
        {
            // At a fixed time, so that two exports are identical.
            let timestamp_ms = self.session.leaf().map_or(0, Record::timestamp_ms);
            let record = RecordBody::custom(WINDOW_RECORD, &json!({ "tokens": tokens }));
            self.session.append_at(record, timestamp_ms)?;
        }
        Ok(self.session)
    }
}

fn open_foreign(
    format: ImportFormat,
    imported: ImportedTranscript,
) -> Result<ImportedSession, SessionError> {
    let ImportedTranscript {
        messages,
        compactions,
        agent_version,
        model,
        cwd,
        id,
        window_tokens,
        problems,
    } = imported;
    let began_ms = messages.first().map_or(0, |message| message.timestamp_ms);
    // A fixed id for a recording without one, so that two replays are identical.
    let id = if id.is_empty() { "recording" } else { &id };
    let mut session = Session::in_memory(SessionHeader::new(Some(id), &cwd, began_ms));
    if let Some((provider, model)) = &model {
        session.append_at(RecordBody::model_change(provider, model), began_ms)?;
    }
    let mut writer = CompactionWriter::new(format.name(), agent_version);
    let mut compactions = compactions.into_iter().peekable();
    let times: Vec<i64> = messages.iter().map(|message| message.timestamp_ms).collect();
    let messages: Vec<Value> = messages.into_iter().map(|message| message.message).collect();
    for (place, (message, timestamp_ms)) in messages.iter().zip(times).enumerate() {
        while let Some(compaction) = compactions.next_if(|compaction| compaction.at <= place) {
            writer.append(&mut session, compaction, &messages)?;
        }
        let body = RecordBody::from_message(message)?;
        writer.add_message(session.append_at(body, timestamp_ms)?);
    }
    for compaction in compactions {
        writer.append(&mut session, compaction, &messages)?;
    }
    Ok(ImportedSession { session, format: format.name().to_owned(), window_tokens, problems })
}
