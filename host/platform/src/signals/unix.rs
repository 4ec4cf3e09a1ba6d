//! Signals on Unix.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::process::ExitStatus;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Arriving, SignalKind, signal};
use tokio::sync::mpsc;

use crate::processes::RUNNING_GROUPS;

/// Signals that a terminal sends to the whole foreground group, including the child.
const TERMINAL_SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];

/// Signals that are sent to us and meant for the child.
const FORWARDED_SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

pub(super) fn survive_file_limit() -> io::Result<()> {
    // The handler stays when the listener and its runtime are dropped. Ignoring the signal instead would reach children.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map(drop)
}

#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Arriving,
    terminate: Arriving,
    /// `None` if it was ignored at the start.
    hang_up: Option<Arriving>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: listen_unless_ignored(Signal::SIGHUP)?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT.as_str(),
            _ = self.terminate.recv() => Signal::SIGTERM.as_str(),
            Some(()) = next_of(&mut self.hang_up) => Signal::SIGHUP.as_str(),
        }
    }
}

/// Listens for a signal; `None` for a hang-up that this process ignores, as `nohup` wants. Shells ignore interrupts for what they
/// start in the background, and one that is sent there is meant.
fn listen_unless_ignored(kind: Signal) -> io::Result<Option<Arriving>> {
    if kind == Signal::SIGHUP && is_ignored(kind) {
        return Ok(None);
    }
    signal(SignalKind::from_raw(kind as i32)).map(Some)
}

/// Whether this process ignores a signal, as far as the system shows it without unsafe code.
fn is_ignored(kind: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    mask.is_some_and(|mask| mask >> (kind as i32 - 1) & 1 == 1)
}

pub(super) fn end_groups_on_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    let mut terminate = listen_unless_ignored(Signal::SIGTERM)?;
    let mut hang_up = listen_unless_ignored(Signal::SIGHUP)?;
    drop(entered);
    let arrival = async move {
        tokio::select! {
            Some(()) = next_of(&mut terminate) => Signal::SIGTERM,
            Some(()) = next_of(&mut hang_up) => Signal::SIGHUP,
            else => std::future::pending().await,
        }
    };
    // A thread of its own: a task would wait for a runtime whose threads are busy.
    let thread = std::thread::Builder::new().name("signals".into());
    let started = thread.spawn(move || {
        let arrived = runtime.block_on(arrival);
        RUNNING_GROUPS.kill_all();
        // The code that shells report for a process that the signal ends.
        std::process::exit(128 + arrived as i32);
    });
    started.map(drop)
}

/// The next arrival; `None` if the signal is ignored.
async fn next_of(arriving: &mut Option<Arriving>) -> Option<()> {
    match arriving {
        Some(arriving) => arriving.recv().await,
        None => None,
    }
}

/// Runs a command that shares the terminal to its end, and forwards the signals of this process to it.
///
/// # Errors
///
/// The error of starting it.
pub async fn run_in_foreground(mut command: Command) -> io::Result<ExitStatus> {
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

fn listen() -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    // Unbounded is safe: signals of one kind coalesce in the kernel.
    let (sender, arrived) = mpsc::unbounded_channel();
    for kind in TERMINAL_SIGNALS.into_iter().chain(FORWARDED_SIGNALS) {
        // The child inherits that it is ignored.
        let Some(arriving) = listen_unless_ignored(kind)? else { continue };
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
