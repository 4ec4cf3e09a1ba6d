//! Signals that stop a server, and those that reach an agent through this process.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(windows, path = "signals/windows.rs")]
mod system;

use std::io;

pub use system::run_in_foreground;

/// The signals that stop a server: an interrupt, a request to end, a closed terminal.
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

    /// Waits for the next of them.
    pub async fn next(&mut self) {
        self.0.next().await;
    }
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
