//! Processes on Windows: no signals, and limits by job objects, which are not used.

use std::fs::File;
use std::io::{self, PipeReader};
use std::os::windows::io::OwnedHandle;
use std::process::{Command, ExitStatus, Stdio};

/// Reads the output of a process without blocking a thread of the runtime.
pub use tokio::fs::File as OutputReader;

/// The signal that ended a process; `None` if it ended by itself.
#[must_use]
pub fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

/// The name of a signal; `None` for an unknown number.
#[must_use]
pub fn signal_name(_signal: i32) -> Option<&'static str> {
    None
}

/// The signal of a process that aborted itself; `None` where there are no signals.
#[must_use]
pub fn abort_signal() -> Option<i32> {
    None
}

/// Makes the command the leader of a group of processes, which [`kill_group`] ends.
pub fn lead_group(_command: &mut Command) {
    // Windows knows which process started which.
}

/// Ends a process with all that it started and that still run.
pub fn kill_group(leader: u32) {
    let mut command = Command::new("taskkill");
    command.args(["/F", "/T", "/PID", &leader.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.status() {
        tracing::debug!(%error, "cannot run taskkill");
    }
}

/// Whether a process may be running: always, because asking needs unsafe code.
#[must_use]
pub fn is_alive(_pid: u32) -> bool {
    true
}

/// The process that started this one, or that took it over; `None` where a process has no such parent.
#[must_use]
pub fn parent_id() -> Option<u32> {
    None
}

/// Limits the address space of this process and forbids core files. Not on Windows.
pub fn limit_memory(_bytes: u64) {}

/// Raises the limit of open files as far as the system allows without privileges. Windows has none.
pub fn raise_open_files() {}

/// Limits the arenas of glibc's malloc. Not on Windows.
pub fn limit_arenas() {}

/// The name of this machine.
#[must_use]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".into())
}

/// The reader of a pipe. Needs a tokio runtime.
///
/// # Errors
///
/// None.
pub fn async_reader(pipe: PipeReader) -> io::Result<OutputReader> {
    Ok(OutputReader::from_std(File::from(OwnedHandle::from(pipe))))
}
