//! The child process itself: started with one socket and nothing else, waited for, killed.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::program::COMMAND;

/// What of the host's environment a worker may see: how texts and times are written.
const SEEN: [&str; 3] = ["LANG", "LC_ALL", "TZ"];

/// Last words of a worker that are kept: a sentence of the runtime or of the C library.
const LAST_WORDS_BYTES: usize = 2048;

/// Who wants to know that it ended, and of what.
type ExitCallback = Box<dyn FnOnce(String) + Send>;

/// A worker's process. Kill it: dropping it does nothing.
pub(super) struct SandboxProcess {
    pub(super) pid: u32,
    state: Mutex<ProcessState>,
}

enum ProcessState {
    /// Not collected yet, so its number is its own.
    Running {
        because: Option<String>,
        on_end: Option<ExitCallback>,
    },
    Exited(String),
}

impl SandboxProcess {
    /// Starts `program` in a folder and answers the host's end of its wire.
    ///
    /// The kernel kills a worker when the *thread* that started it ends. So that thread is one of its
    /// own, which waits for it.
    pub(super) fn spawn(
        program: &Path,
        folder: &Path,
        id: &str,
    ) -> io::Result<(Arc<SandboxProcess>, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = command(program, folder, theirs)?;
        let (tell, told) = mpsc::channel();
        let keeper = std::thread::Builder::new().name(format!("worker-{id}"));
        keeper.spawn(move || {
            let spawned = command.spawn();
            // It holds the worker's end of the wire.
            drop(command);
            match spawned {
                Err(error) => drop(tell.send(Err(error))),
                Ok(mut child) => {
                    let process = Arc::new(SandboxProcess::new(&child));
                    let _ = tell.send(Ok(process.clone()));
                    process.wait(&mut child);
                }
            }
        })?;
        let process = told.recv().map_err(io::Error::other)??;
        Ok((process, ours))
    }

    fn new(child: &Child) -> SandboxProcess {
        let state = ProcessState::Running { because: None, on_end: None };
        SandboxProcess { pid: child.id(), state: Mutex::new(state) }
    }

    /// Calls `tell` with the reason once the process has ended, at once where it has.
    pub(super) fn on_exit(&self, tell: impl FnOnce(String) + Send + 'static) {
        let ended = match &mut *self.state() {
            ProcessState::Exited(reason) => reason.clone(),
            ProcessState::Running { on_end, .. } => {
                *on_end = Some(Box::new(tell));
                return;
            }
        };
        tell(ended);
    }

    /// Looks at it by its number, which is its own as long as this takes; `None` where it has ended.
    pub(super) fn with_running_pid<T>(&self, look: impl FnOnce(u32) -> T) -> Option<T> {
        match &*self.state() {
            ProcessState::Running { .. } => Some(look(self.pid)),
            ProcessState::Exited(_) => None,
        }
    }

    /// Kills it. The first reason that is given is the one that is told.
    pub(super) fn kill(&self, reason: Option<&str>) {
        if let ProcessState::Running { because, .. } = &mut *self.state() {
            if because.is_none() {
                *because = reason.map(str::to_owned);
            }
            if let Ok(pid) = i32::try_from(self.pid).map(Pid::from_raw) {
                // That it is gone already is no error; nobody else can have its number before it is
                // collected. By itself as well: where no filter holds it, it may have left its group.
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }

    /// Stays with the child to its end.
    fn wait(&self, child: &mut Child) {
        let last_words = child.stderr.take().map(last_words).unwrap_or_default();
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.cast_signed()) {
            // Waits without collecting it, whatever signals this process hears meanwhile.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
        }
        let (reason, on_end) = {
            let mut state = self.state();
            let status = child.wait();
            let (because, on_end) = match &mut *state {
                ProcessState::Running { because, on_end } => (because.take(), on_end.take()),
                ProcessState::Exited(_) => (None, None),
            };
            let reason = because.unwrap_or_else(|| describe(status.ok(), &last_words));
            *state = ProcessState::Exited(reason.clone());
            (reason, on_end)
        };
        if let Some(tell) = on_end {
            tell(reason);
        }
    }

    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn command(program: &Path, folder: &Path, wire: UnixStream) -> io::Result<Command> {
    let seen = SEEN.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut command = Command::new(std::path::absolute(program)?);
    command
        .arg0("ctxhost")
        .arg(COMMAND)
        .arg(std::process::id().to_string())
        .env_clear()
        .envs(seen)
        // Each arena of the C library reserves 64 MiB of the address space that is limited.
        .env("MALLOC_ARENA_MAX", "2")
        .current_dir(folder)
        .stdin(OwnedFd::from(wire))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    Ok(command)
}

/// Reads all that it says on standard error and keeps the end of it.
fn last_words(mut stderr: ChildStderr) -> String {
    let mut kept = VecDeque::new();
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        kept.extend(buffer.get(..read).unwrap_or_default());
        let surplus = kept.len().saturating_sub(LAST_WORDS_BYTES);
        kept.drain(..surplus);
    }
    let said = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
    tracing::debug!(said, "worker's standard error");
    said
}

/// How it ended, with the last line that it said.
fn describe(status: Option<ExitStatus>, last_words: &str) -> String {
    let how = match status.map(|status| (status.signal(), status.code())) {
        Some((Some(number), _)) => {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            format!("was killed by signal {number} ({name})")
        }
        Some((None, Some(code))) => format!("ended with exit code {code}"),
        _ => "ended".into(),
    };
    let is_said = |line: &&str| !line.trim().is_empty() && !line.starts_with("note:");
    match last_words.lines().rev().find(is_said) {
        Some(line) => format!("{how}: {}", line.trim()),
        None => how,
    }
}
