//! Opens session files for commands that need Pi's format, and refuses to change the recordings of other agents.

use std::path::Path;

use super::agent_folders::{is_database_name, is_of_openclaw};
use super::error::CliError;
use super::session_arg::shell_quote;
use ctxhost_import::ImportFormat;
use ctxhost_session::{Session, SessionError};

/// Reads the session in a file. Errors show it as the user named it.
pub(super) fn read_session(named: &Path, file: &Path) -> Result<Session, CliError> {
    Session::read(file).map_err(|error| session_error(named, file, error))
}

/// Opens the session in a file to append to it. Recordings of other agents are refused.
pub(super) fn open_to_change(named: &Path, file: &Path) -> Result<Session, CliError> {
    check_changeable(named, file)?;
    Session::open(file).map_err(|error| session_error(named, file, error))
}

/// Refuses the files of OpenClaw, whose format is Pi's: opening one would succeed.
pub(super) fn check_changeable(named: &Path, file: &Path) -> Result<(), CliError> {
    if is_of_openclaw(file) { Err(refusal(named, "openclaw")) } else { Ok(()) }
}

/// The error of a session, which is a refusal if the file is a recording of another agent.
pub(super) fn session_error(named: &Path, file: &Path, error: SessionError) -> CliError {
    let recording = match &error {
        // A session in the database of an agent is not a file.
        SessionError::Header { .. } | SessionError::Io { .. } => recording_error(named, file),
        _ => None,
    };
    recording.unwrap_or_else(|| CliError::of_session(error))
}

/// The error of a command that needs a session, if the file is a recording of another agent.
pub(super) fn recording_error(named: &Path, file: &Path) -> Option<CliError> {
    let format = ctxhost_import::open_file(file).ok()?.format;
    if !format.starts_with(ImportFormat::Pi.name()) {
        return Some(refusal(named, &format));
    }
    // A session of Pi can be changed, so what failed is something else.
    let is_stored = || file.parent().is_some_and(is_database_name);
    (is_stored() || is_of_openclaw(file)).then(|| refusal(named, "openclaw"))
}

fn refusal(named: &Path, format: &str) -> CliError {
    let quoted = shell_quote(named);
    let error = CliError::user(format!(
        "{quoted} is a recording of {format}; recordings are never written"
    ));
    error.hint(format!(
        "replay, diff, context, bisect, fetch and statusline read it as it is; `ctxhost export {quoted} --out \
         session.jsonl` makes a session for this command"
    ))
}
