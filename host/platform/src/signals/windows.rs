//! The events of a console, which Windows has instead of signals.

use std::io;
use std::process::ExitStatus;

use tokio::process::Command;
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

#[derive(Debug)]
pub(super) struct Signals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        Ok(Signals { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.stop.recv() => "Ctrl-Break",
            _ = self.close.recv() => "the end of the console",
        }
    }
}

/// A closed console ends what runs in it.
pub(super) fn end_groups_on_signals() -> io::Result<()> {
    Ok(())
}

/// Windows has no such limit.
pub(super) fn survive_file_limit() -> io::Result<()> {
    Ok(())
}

/// Runs a command that shares the console to its end. The console sends its events to both processes; here they
/// are ignored, so that the child ends first.
///
/// # Errors
///
/// The error of starting it.
pub async fn run_in_foreground(mut command: Command) -> io::Result<ExitStatus> {
    let mut signals = Signals::listen()?;
    let mut child = command.spawn()?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            _ = signals.next() => {}
        }
    }
}
