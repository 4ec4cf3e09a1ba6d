//! The child process of a sandbox: its start with a single socket, its exit, its kill.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::program::COMMAND;

/// The variables of the host's environment that the child inherits: language and time zone.
const INHERITED: [&str; 3] = ["LANG", "LC_ALL", "TZ"];

/// How much of the end of standard error is kept: a message of the Rust runtime or the C library.
const STDERR_TAIL_BYTES: usize = 2048;

/// Called with the reason when the process has ended.
type ExitCallback = Box<dyn FnOnce(String) + Send>;

/// The process of a sandbox. Dropping it does not kill the process.
pub(super) struct SandboxProcess {
    pub(super) pid: u32,
    state: Mutex<ProcessState>,
}

enum ProcessState {
    /// Not reaped yet, so that its pid is still its own.
    Running {
        kill_reason: Option<String>,
        on_exit: Option<ExitCallback>,
    },
    Exited(String),
}

impl SandboxProcess {
    /// Starts `program` in a folder, with its standard output in a file; returns the process and the host's end of its socket.
    pub(super) fn spawn(
        program: &Path,
        folder: &Path,
        output: File,
        id: &str,
    ) -> io::Result<(Arc<SandboxProcess>, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = command(program, folder, output, theirs)?;
        let (send, receive) = mpsc::channel();
        // PR_SET_PDEATHSIG kills the child when the *thread* that started it ends, so that thread is
        // one that waits for the child.
        let waiter = std::thread::Builder::new().name(format!("sandbox-{id}"));
        waiter.spawn(move || {
            let spawned = command.spawn();
            // It holds the child's end of the socket, which would keep the stream open.
            drop(command);
            match spawned {
                Err(error) => drop(send.send(Err(error))),
                Ok(mut child) => {
                    let process = Arc::new(SandboxProcess::new(&child));
                    let _ = send.send(Ok(process.clone()));
                    process.wait(&mut child);
                }
            }
        })?;
        let process = receive.recv().map_err(io::Error::other)??;
        Ok((process, ours))
    }

    fn new(child: &Child) -> SandboxProcess {
        let state = ProcessState::Running { kill_reason: None, on_exit: None };
        SandboxProcess { pid: child.id(), state: Mutex::new(state) }
    }

    /// Calls `callback` with the reason once the process has ended; at once where it has.
    pub(super) fn on_exit(&self, callback: impl FnOnce(String) + Send + 'static) {
        let ended = match &mut *self.state.lock() {
            ProcessState::Exited(reason) => reason.clone(),
            ProcessState::Running { on_exit, .. } => {
                *on_exit = Some(Box::new(callback));
                return;
            }
        };
        callback(ended);
    }

    /// Calls `look` with the pid, which cannot be reused meanwhile; `None` where the process has ended.
    pub(super) fn with_running_pid<T>(&self, look: impl FnOnce(u32) -> T) -> Option<T> {
        match &*self.state.lock() {
            ProcessState::Running { .. } => Some(look(self.pid)),
            ProcessState::Exited(_) => None,
        }
    }

    /// Kills the process. The first reason given is the one that is reported.
    pub(super) fn kill(&self, reason: Option<&str>) {
        if let ProcessState::Running { kill_reason, .. } = &mut *self.state.lock() {
            if kill_reason.is_none() {
                *kill_reason = reason.map(str::to_owned);
            }
            if let Ok(pid) = i32::try_from(self.pid).map(Pid::from_raw) {
                // Errors mean that it has ended; its pid is not reused before it is reaped. The pid as
                // well as the group: without a filter the process may have left its group.
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }

    /// Waits for the child and reports its end.
    fn wait(&self, child: &mut Child) {
        let stderr_tail = child.stderr.take().map(read_tail).unwrap_or_default();
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.cast_signed()) {
            // Waits without reaping it: `kill` needs the pid until the state has changed.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        }
        let (reason, on_exit) = {
            let mut state = self.state.lock();
            let status = child.wait();
            let (kill_reason, on_exit) = match &mut *state {
                ProcessState::Running { kill_reason, on_exit } => {
                    (kill_reason.take(), on_exit.take())
                }
                ProcessState::Exited(_) => (None, None),
            };
            let reason = kill_reason.unwrap_or_else(|| describe(status.ok(), &stderr_tail));
            *state = ProcessState::Exited(reason.clone());
            (reason, on_exit)
        };
        if let Some(callback) = on_exit {
            callback(reason);
        }
    }
}

fn command(program: &Path, folder: &Path, output: File, wire: UnixStream) -> io::Result<Command> {
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut command = Command::new(std::path::absolute(program)?);
    command
        // The program may be `/proc/self/exe`, which would be listed as `exe`.
        .arg0("ctxhost")
        .arg(COMMAND)
        .arg(std::process::id().to_string())
        .env_clear()
        .envs(inherited)
        // Each malloc arena of glibc reserves 64 MiB of the limited address space.
        .env("MALLOC_ARENA_MAX", "2")
        .current_dir(folder)
        // As standard input, because all other descriptors are closed at exec.
        .stdin(OwnedFd::from(wire))
        .stdout(output)
        .stderr(Stdio::piped())
        // A group of its own: Ctrl-C in a terminal reaches the host alone, which then disposes of
        // its engines.
        .process_group(0);
    Ok(command)
}

/// Reads standard error to its end and returns the last part.
fn read_tail(mut stderr: ChildStderr) -> String {
    let mut kept = VecDeque::new();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        kept.extend(buffer.get(..read).unwrap_or_default());
        let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
    tracing::debug!(text, "standard error of a sandbox");
    text
}

/// How the process ended, with the last line of its standard error.
fn describe(status: Option<ExitStatus>, stderr_tail: &str) -> String {
    let how = match status.map(|status| (status.signal(), status.code())) {
        Some((Some(number), _)) => {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            format!("was killed by signal {number} ({name})")
        }
        Some((None, Some(code))) => format!("ended with exit code {code}"),
        _ => "ended".into(),
    };
    let is_message = |line: &&str| !line.trim().is_empty() && !line.starts_with("note:");
    match stderr_tail.lines().rev().find(is_message) {
        Some(line) => format!("{how}: {}", line.trim()),
        None => how,
    }
}
