//! The exit code of the agent, which becomes ours.

use std::io;
use std::process::{ExitCode, ExitStatus};

use ctxhost_platform::processes::signal_of;

/// The exit codes for a command that is not found or cannot be started, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// The exit code of a child: its own, or 128 plus the signal, as in shells.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = || signal_of(status).map(|signal| 128 + signal);
    let code = status.code().or_else(signal).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The exit code if the child did not start.
pub(super) fn start_failure_code(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_STARTED),
    }
}
