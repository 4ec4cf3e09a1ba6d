//! Starts a sandbox: copies the library, starts the process, performs the handshake, creates the engine.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ctxhost_engine_api::border::{EntryPoint, HostServices as _};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Handle;

use super::connection::SandboxConnection;
use super::error::SandboxError;
use super::info::{Confinement, ConfinementLimits};
use super::process::SandboxProcess;
use super::program::find_program;
use super::settings::SandboxSettings;
use super::wire::{self, FromSandbox, Hello, ToSandbox};
use crate::calls::{CallLimit, CallTable};
use crate::engine_texts::{limit_error, limit_info, limit_line, limit_names};
use crate::library::{EngineFile, LoadError, private_folder};
use crate::services::EngineServices;

/// What every sandbox of an engine is started with: the same bytes, even if the file changes.
pub(super) struct SandboxLauncher {
    pub(super) file: EngineFile,
    pub(super) copies_folder: PathBuf,
    pub(super) settings: SandboxSettings,
    pub(super) config: Value,
    pub(super) services: Arc<EngineServices>,
    pub(super) calls: Arc<CallTable>,
    pub(super) create_ms: u64,
    pub(super) recorded_clock: bool,
    pub(super) runtime: Handle,
}

/// A sandbox with its engine.
pub(super) struct SandboxLaunch {
    pub(super) connection: SandboxConnection,
    pub(super) info: EngineInfo,
    pub(super) confinement: Confinement,
    /// Kills the sandbox, unless it is disarmed.
    pub(super) kill_guard: KillOnDrop,
}

/// Why a sandbox with its engine did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("the engine requires {}, which this host does not offer", .0.join(", "))]
    Missing(Vec<String>),
    #[error("the engine could not be created: {0}")]
    Create(EngineError),
}

impl SandboxLauncher {
    /// Starts sandbox `number`. Blocks.
    pub(super) fn launch(&self, number: u64) -> Result<SandboxLaunch, LaunchError> {
        let program = find_program(self.settings.program.as_deref()).map_err(SandboxError::from)?;
        let id = &self.file.meta.id;
        // Deleted when this function returns; the sandbox has loaded it by then.
        let copy = self.file.copy(&self.copies_folder)?;
        let failed = |source| SandboxError::Start { program: display_path(&program), source };
        let folder = empty_folder(&self.copies_folder)?;
        let output = null_device()?;
        // From here on every error has to kill the process, hence the guard.
        let (process, socket) =
            SandboxProcess::spawn(&program, &folder, output, id).map_err(failed)?;
        let kill_guard = KillOnDrop(Some(process.clone()));
        let (info, confinement) = self.handshake(&program, &process, &socket, copy.path())?;
        self.check_id(&info)?;
        let (services, runtime) = (self.services.clone(), self.runtime.clone());
        let connection =
            SandboxConnection::open(number, process, socket, services, runtime, &self.settings)
                .map_err(failed)?;
        let offered = self.services.info().capabilities;
        let missing = info.requires.iter().filter(|name| !offered.contains(name));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(LaunchError::Missing(limit_names(missing)));
        }
        self.create(&connection).map_err(LaunchError::Create)?;
        Ok(SandboxLaunch { connection, info, confinement, kill_guard })
    }

    fn check_id(&self, info: &EngineInfo) -> Result<(), LoadError> {
        // The loader checked the id already, but in a process that runs untrusted code by now.
        let (written, running) = (self.file.meta.id.clone(), info.id.clone());
        if written == running {
            Ok(())
        } else {
            Err(LoadError::IdMismatch { path: self.file.path.clone(), written, running })
        }
    }

    /// Sends the first frame and receives the result of loading the library.
    fn handshake(
        &self,
        program: &Path,
        process: &Arc<SandboxProcess>,
        socket: &UnixStream,
        library: &Path,
    ) -> Result<(EngineInfo, Confinement), SandboxError> {
        let hello = Hello {
            wire: wire::WIRE_VERSION,
            version: env!("CARGO_PKG_VERSION").into(),
            id: self.file.meta.id.clone(),
            in_c: self.file.meta.entry_point == EntryPoint::C,
            library: library.to_owned(),
            origin: self.file.path.clone(),
            host: self.services.info(),
            recorded_clock: self.recorded_clock,
            limits: self.limits(library),
        };
        let mut buffer = Vec::new();
        let mut receive = || -> io::Result<Option<FromSandbox>> {
            let received = wire::receive(socket, self.settings.answer_bytes(), &mut buffer)?;
            received.then(|| wire::decode(&buffer)).transpose()
        };
        let not_a_sandbox = |reason| SandboxError::NotASandbox {
            program: display_path(program),
            library: display_path(&self.file.path),
            reason,
        };
        let unexpected = |frame: io::Result<Option<FromSandbox>>| match frame {
            Ok(Some(FromSandbox::Refused { reason })) => {
                SandboxError::Refused { reason: limit_line(reason) }
            }
            Ok(Some(_)) => not_a_sandbox("sent an unexpected frame".into()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                not_a_sandbox(format!("sent {error}"))
            }
            Ok(None) | Err(_) => not_a_sandbox(early_exit_reason(process)),
        };
        let in_time =
            kill_after(self.settings.start_ms, process).map_err(|error| unexpected(Err(error)))?;
        // A process that has ended is seen by the answer that does not come.
        let _ = wire::send(socket, &ToSandbox::Hello(hello));
        let confinement = match receive() {
            Ok(Some(FromSandbox::Confined(confinement))) => confinement,
            other => return Err(unexpected(other)),
        };
        let info = match receive() {
            Ok(Some(FromSandbox::Loaded(info))) => limit_info(info),
            other => return Err(unexpected(other)),
        };
        drop(in_time);
        Ok((info, confinement))
    }

    fn limits(&self, library: &Path) -> ConfinementLimits {
        let mut readable = self.settings.readable.clone();
        readable.push(library.to_owned());
        ConfinementLimits {
            memory_bytes: self.settings.memory_mib.saturating_mul(1024 * 1024),
            open_files: self.settings.open_files,
            readable,
            writable: None,
        }
    }

    fn create(&self, connection: &SandboxConnection) -> Result<()> {
        let limit = Duration::from_millis(self.create_ms);
        let guard = self.calls.begin(CallLimit::fixed(limit), None);
        let mut pending = connection.create(&guard, self.config.clone());
        let (send, receive) = mpsc::channel();
        self.runtime.spawn(async move {
            let _ = send.send(pending.answer().await);
        });
        match receive.recv_timeout(limit) {
            Ok(Some(reply)) => reply.map(drop).map_err(limit_error),
            Ok(None) => Err(dead_error(&connection.exit_reason().unwrap_or_default())),
            Err(_) => {
                connection.kill(None);
                let limit_ms = group_thousands(self.create_ms);
                let message = format!("exceeded {limit_ms} ms (timeouts.create_ms)");
                Err(EngineError::new(ErrorKind::Deadline, message))
            }
        }
    }
}

/// The error of a call whose sandbox died.
pub(super) fn dead_error(reason: &str) -> EngineError {
    EngineError::new(ErrorKind::Dead, format!("its sandbox {reason}"))
}

/// Kills a sandbox whose start fails half-way.
pub(super) struct KillOnDrop(Option<Arc<SandboxProcess>>);

impl KillOnDrop {
    /// Lets the sandbox run.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            process.kill(None);
        }
    }
}

/// Kills a process at its time limit, unless the sender is dropped before.
fn kill_after(limit_ms: u64, process: &Arc<SandboxProcess>) -> io::Result<mpsc::Sender<()>> {
    // A read timeout of the socket would restart with every byte that a slow process sends.
    let (in_time, late) = mpsc::channel();
    let process = process.clone();
    std::thread::Builder::new().name("sandbox-limit".into()).spawn(move || {
        let limit = Duration::from_millis(limit_ms);
        if late.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let limit_ms = group_thousands(limit_ms);
            process.kill(Some(&format!("exceeded {limit_ms} ms (plugins.sandbox.start_ms)")));
        }
    })?;
    Ok(in_time)
}

/// Why a process ended before it sent a frame.
fn early_exit_reason(process: &SandboxProcess) -> String {
    let (send, receive) = mpsc::channel();
    process.on_exit(move |reason| drop(send.send(reason)));
    // It may also have closed its socket and still run.
    let reason = receive.recv_timeout(Duration::from_secs(1));
    format!("{} before it was ready", reason.unwrap_or_else(|_| "closed its connection".into()))
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// The working directory of all sandboxes, which stays empty.
fn empty_folder(copies: &Path) -> Result<PathBuf, SandboxError> {
    let folder = copies.join("empty");
    private_folder(&folder)
        // The child enters it, and the error of that would be reported as one of the program.
        .and_then(|()| std::fs::metadata(folder.join(".")))
        .and_then(|_| std::path::absolute(&folder))
        .map_err(|source| SandboxError::Unopened { path: display_path(&folder), source })
}

/// Standard output of a sandbox. Opened here, since the child would report an error as one of the program.
fn null_device() -> Result<File, SandboxError> {
    let path = "/dev/null";
    let opened = File::options().write(true).open(path);
    opened.map_err(|source| SandboxError::Unopened { path: path.into(), source })
}
