//! The agent as a child: it has our terminal and gets our signals, and its exit code is ours.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Arriving, SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that a terminal sends to all programs in front of it, the child among them.
const TERMINAL_SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];

/// Signals that somebody sends to us and means for the child.
const FORWARDED_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// The exit code of a command that was not found, and of one that could not be started, as shells have it.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// Runs a command to its end and passes on what is sent to us meanwhile.
///
/// # Errors
///
/// Whatever kept it from being started.
pub(super) async fn run(mut command: Command) -> io::Result<ExitStatus> {
    // From here on no signal ends us before the child: a gateway that goes first takes its models away.
    let mut arrived = listen()?;
    let mut child = command.spawn()?;
    // Sent to us alone where no terminal is; where there is one, the child has got it already.
    let is_shared = io::stdin().is_terminal();
    loop {
        tokio::select! {
            ended = child.wait() => return ended,
            Some(signal) = arrived.recv() => {
                if !(is_shared && TERMINAL_SIGNALS.contains(&signal)) {
                    send_to_child(&child, signal);
                }
            }
        }
    }
}

/// The exit code of a child: its own, or 128 and the signal that ended it, as shells have it.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The exit code where there was no child.
pub(super) fn start_failure_code(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_STARTED),
    }
}

fn listen() -> io::Result<mpsc::UnboundedReceiver<Signal>> {
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
    // None once it has ended, so that nobody else's process is meant.
    let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) else { return };
    if let Err(error) = kill(Pid::from_raw(id), signal) {
        tracing::warn!(%error, %signal, "a signal was not passed on");
    }
}
