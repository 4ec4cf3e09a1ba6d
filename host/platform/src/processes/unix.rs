//! Processes on Unix.

use std::env;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _, parent_id as parent};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Reads the output of a process without blocking a thread of the runtime.
pub use tokio::net::unix::pipe::Receiver as OutputReader;

/// The signal that ended a process; `None` if it ended by itself.
#[must_use]
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// The name of a signal; `None` for an unknown number.
#[must_use]
pub fn signal_name(signal: i32) -> Option<&'static str> {
    Signal::try_from(signal).ok().map(Signal::as_str)
}

/// The signal of a process that aborted itself; `None` where there are no signals.
#[must_use]
pub fn abort_signal() -> Option<i32> {
    Some(Signal::SIGABRT as i32)
}

/// Makes the command the leader of a group of processes, which [`kill_group`] ends.
pub fn lead_group(command: &mut Command) {
    command.process_group(0);
}

/// Ends the processes of a group, if any is left. Its leader must not have been waited for, or its id may
/// belong to another process.
pub fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // An error means that the group is gone.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
}

/// Whether a process may be running.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    // EPERM means that the process exists and belongs to another user.
    kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

/// The process that started this one, or that took it over; `None` where a process has no such parent.
#[must_use]
pub fn parent_id() -> Option<u32> {
    Some(parent())
}

/// Limits the address space of this process and forbids core files. Best effort.
pub fn limit_memory(bytes: u64) {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_AS) {
        let _ = setrlimit(Resource::RLIMIT_AS, bytes.min(most), most);
    }
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Raises the limit of open files as far as the system allows without privileges. Best effort.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

/// Limits the arenas of glibc's malloc to two, unless `MALLOC_ARENA_MAX` is set: starts this program again in the same
/// process, since the C library reads the variable before `main`. Call it before anything is opened. Best effort.
// By default each of up to eight threads per CPU gets an arena and keeps freed memory in it (docs/performance.md).
pub fn limit_arenas() {
    const ARENAS: &str = "MALLOC_ARENA_MAX";
    let mut arguments = env::args_os();
    let Some(name) = arguments.next() else { return };
    if !cfg!(target_env = "gnu") || env::var_os(ARENAS).is_some() {
        return;
    }
    let started = env::current_exe().map(|program| {
        // Returns only if it fails.
        Command::new(program).arg0(name).args(arguments).env(ARENAS, "2").exec()
    });
    tracing::debug!(?started, "cannot start again with {ARENAS}");
}

/// The name of this machine.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The reader of a pipe. Needs a tokio runtime.
///
/// # Errors
///
/// That of the system.
pub fn async_reader(pipe: PipeReader) -> io::Result<OutputReader> {
    OutputReader::from_owned_fd(OwnedFd::from(pipe))
}
