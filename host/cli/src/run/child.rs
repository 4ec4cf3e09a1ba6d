//! Runs the agent as a child process: it shares the terminal, gets our signals, and its exit code
//! is ours.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Arriving, SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that a terminal sends to the whole foreground group, including the child.
const TERMINAL_SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];

/// Signals that are sent to us and meant for the child.
const FORWARDED_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// The exit codes for a command that is not found or cannot be started, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// Runs a command to its end and forwards signals.
///
/// # Errors
///
/// The error of starting it.
pub(super) async fn run(mut command: Command) -> io::Result<ExitStatus> {
    // From here on signals do not end this process before the child, which would lose its gateway.
    let mut arrived = listen()?;
    let mut child = command.spawn()?;
    // Without a terminal, signals reach only this process; with one, the child has received them
    // already.
    let is_shared = io::stdin().is_terminal();
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            Some(signal) = arrived.recv() => {
                // Forwarding these as well would deliver Ctrl-C twice, which many programs treat as
                // a forced quit.
                if !(is_shared && TERMINAL_SIGNALS.contains(&signal)) {
                    send_to_child(&child, signal);
                }
            }
        }
    }
}

/// The exit code of a child: its own, or 128 plus the signal, as in shells.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = || status.signal().map(|signal| 128 + signal);
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

fn listen() -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    // Unbounded is safe: signals of one kind coalesce in the kernel.
    let (sender, arrived) = mpsc::unbounded_channel();
    for kind in TERMINAL_SIGNALS.into_iter().chain(FORWARDED_SIGNALS) {
        let arriving = signal(SignalKind::from_raw(kind as i32))?;
        tokio::spawn(forward_signal(arriving, kind, sender.clone()));
    }
    Ok(arrived)
}

async fn forward_signal(
    mut arriving: Arriving,
    kind: Signal,
    sender: mpsc::UnboundedSender<Signal>,
) {
    while arriving.recv().await.is_some() {
        if sender.send(kind).is_err() {
            return;
        }
    }
}

fn send_to_child(child: &Child, signal: Signal) {
    // `None` once the child has ended, so that a reused process id is not signalled.
    let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) else { return };
    if let Err(error) = kill(Pid::from_raw(id), signal) {
        tracing::warn!(%error, %signal, "could not forward a signal");
    }
}
