//! Signals that stop a server, and those that reach an agent through this process.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(windows, path = "signals/windows.rs")]
mod system;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::io;

pub use system::run_in_foreground;

/// The signals that stop a server: an interrupt, a request to end, a closed terminal unless it was ignored at the start (`nohup`).
#[derive(Debug)]
pub struct ShutdownSignals(system::Signals);

impl ShutdownSignals {
    /// Listens from now on; the signals no longer end this process. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub fn listen() -> io::Result<ShutdownSignals> {
        system::Signals::listen().map(ShutdownSignals)
    }

    /// Waits for the next of them and returns its name.
    pub async fn next(&mut self) -> &'static str {
        self.0.next().await
    }
}

/// From now on a request to end and a closed terminal kill the groups in [`crate::processes::RUNNING_GROUPS`] before they end this
/// process; by default the system would leave the groups running. A hang-up that was ignored at the start stays ignored.
///
/// # Errors
///
/// That of the system.
pub fn end_groups_on_signals() -> io::Result<()> {
    system::end_groups_on_signals()
}

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail with an error, as on a full disk; by default the system
/// ends the process. Children are not affected.
///
/// # Errors
///
/// That of the system.
pub fn survive_file_limit() -> io::Result<()> {
    system::survive_file_limit()
}
