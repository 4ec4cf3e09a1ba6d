//! Starting a worker: a private copy of the library, a process, its first words, the engine built.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ctxhost_engine_api::border::{EntryPoint, HostServices as _};
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Handle;

use super::confinement::{Confinement, ConfinementLimits};
use super::connection::SandboxConnection;
use super::process::SandboxProcess;
use super::wire::{self, FromSandbox, Hello, ToSandbox};
use super::{SandboxError, SandboxSettings, program};
use crate::calls::{CallLimit, CallTable};
use crate::library::{EngineFile, LoadError, private_folder};
use crate::services::EngineServices;
use crate::threads::timeout_error;

/// All that every worker of one engine is started with: the same bytes, whatever becomes of the file.
pub(super) struct SandboxLauncher {
    pub(super) file: EngineFile,
    pub(super) copies_folder: PathBuf,
    pub(super) settings: SandboxSettings,
    pub(super) config: Value,
    pub(super) services: Arc<EngineServices>,
    pub(super) calls: Arc<CallTable>,
    pub(super) create_timeout: Duration,
    pub(super) recorded_clock: bool,
    pub(super) runtime: Handle,
}

/// A worker with its engine.
pub(super) struct SandboxLaunch {
    pub(super) connection: SandboxConnection,
    pub(super) info: EngineInfo,
    pub(super) confinement: Confinement,
    /// Kills it, unless somebody takes it over.
    pub(super) kill_guard: KillOnDrop,
}

/// Why it did not come to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error(transparent)]
    Worker(#[from] SandboxError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("it needs the host to have {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("it could not be created: {0}")]
    Create(EngineError),
}

impl SandboxLauncher {
    /// Starts worker `number`. Takes its time: not for a thread that others wait for.
    pub(super) fn launch(&self, number: u64) -> Result<SandboxLaunch, LaunchError> {
        let program =
            program::find_program(self.settings.program.as_deref()).map_err(SandboxError::from)?;
        let id = &self.file.meta.id;
        let copy = self.file.copy(&self.copies_folder)?;
        let failed = |source| SandboxError::Start { program: display_path(&program), source };
        let folder = empty_folder(&self.copies_folder).map_err(failed)?;
        let (process, socket) = SandboxProcess::spawn(&program, &folder, id).map_err(failed)?;
        let fallen = KillOnDrop(Some(process.clone()));
        let (info, confinement) = self.handshake(&program, &process, &socket, copy.path())?;
        self.check_id(&info)?;
        let (services, runtime) = (self.services.clone(), self.runtime.clone());
        let link =
            SandboxConnection::open(number, process, socket, services, runtime, &self.settings);
        let link = link.map_err(failed)?;
        let offered = self.services.info().capabilities;
        let missing = info.requires.iter().filter(|need| !offered.contains(need));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(LaunchError::Missing(missing));
        }
        self.create(&link).map_err(LaunchError::Create)?;
        Ok(SandboxLaunch { connection: link, info, confinement, kill_guard: fallen })
    }

    /// A worker that has loaded an engine runs code that nobody vouches for, and could say anything.
    fn check_id(&self, info: &EngineInfo) -> Result<(), LoadError> {
        let (written, running) = (self.file.meta.id.clone(), info.id.clone());
        match written == running {
            true => Ok(()),
            false => Err(LoadError::IdMismatch { path: self.file.path.clone(), written, running }),
        }
    }

    /// Says what to be, and hears what became of it.
    fn handshake(
        &self,
        program: &Path,
        process: &Arc<SandboxProcess>,
        mut socket: &std::os::unix::net::UnixStream,
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
        let talk = || -> io::Result<Option<FromSandbox>> {
            let _in_time = kill_after(self.settings.start_timeout(), process)?;
            wire::send(&mut socket, &ToSandbox::Hello(hello))?;
            let heard = wire::receive(socket, self.settings.answer_bytes(), &mut buffer)?;
            heard.then(|| wire::decode(&buffer)).transpose()
        };
        let no_worker =
            |reason| SandboxError::NotASandbox { program: display_path(program), reason };
        match talk() {
            Ok(Some(FromSandbox::Loaded { info, confinement })) => Ok((info, confinement)),
            Ok(Some(FromSandbox::Refused { reason })) => Err(SandboxError::Refused { reason }),
            Ok(Some(_)) => Err(no_worker("spoke before it was asked".into())),
            Ok(None) => Err(no_worker(early_exit_reason(process))),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(no_worker(format!("sent {error}")))
            }
            Err(_) => Err(no_worker(early_exit_reason(process))),
        }
    }

    fn limits(&self, library: &Path) -> ConfinementLimits {
        let mut readable = self.settings.readable.clone();
        readable.push(library.to_owned());
        ConfinementLimits {
            memory_bytes: self.settings.memory_mib.saturating_mul(1024 * 1024),
            open_files: self.settings.open_files,
            readable,
        }
    }

    fn create(&self, link: &SandboxConnection) -> Result<()> {
        let call = self.calls.begin(CallLimit::fixed(self.create_timeout), None);
        let mut flight = link.create(&call, self.config.clone());
        let (tell, told) = mpsc::channel();
        self.runtime.spawn(async move {
            let _ = tell.send(flight.answer().await);
        });
        match told.recv_timeout(self.create_timeout) {
            Ok(Some(answer)) => answer.map(drop),
            Ok(None) => Err(dead_error(&link.exit_reason().unwrap_or_default())),
            Err(_) => {
                link.kill(None);
                let message = format!("it took longer than {} ms", self.create_timeout.as_millis());
                Err(EngineError { message, ..timeout_error() })
            }
        }
    }
}

/// The worker is dead.
pub(super) fn dead_error(reason: &str) -> EngineError {
    EngineError::new(ErrorKind::Dead, format!("its worker {reason}"))
}

/// A worker that did not get far enough is killed.
pub(super) struct KillOnDrop(Option<Arc<SandboxProcess>>);

impl KillOnDrop {
    /// It goes on.
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

/// Kills a process at its time limit, unless what is answered here is dropped before. A limit of the
/// socket would hold for each read, and a worker that says a byte now and then would never be late.
fn kill_after(limit: Duration, process: &Arc<SandboxProcess>) -> io::Result<mpsc::Sender<()>> {
    let (in_time, late) = mpsc::channel();
    let process = process.clone();
    std::thread::Builder::new().name("worker-limit".into()).spawn(move || {
        if late.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let limit = limit.as_millis();
            process.kill(Some(&format!("used up its {limit} ms (plugins.worker.start_ms)")));
        }
    })?;
    Ok(in_time)
}

/// Of what a worker ended that said nothing.
fn early_exit_reason(process: &SandboxProcess) -> String {
    let (tell, told) = mpsc::channel();
    process.on_exit(move |reason| drop(tell.send(reason)));
    let reason = told.recv_timeout(Duration::from_secs(1));
    format!("{} before it was ready", reason.unwrap_or_else(|_| "closed its wire".into()))
}

fn display_path(program: &Path) -> String {
    program.display().to_string()
}

/// The folder that all workers stand in. Nothing is ever in it.
fn empty_folder(copies: &Path) -> io::Result<PathBuf> {
    let folder = copies.join("empty");
    private_folder(&folder)?;
    std::path::absolute(folder)
}
