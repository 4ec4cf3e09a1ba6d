//! Starting a worker: a private copy of the library, a process, its first words, the engine built.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ctxhost_engine_api::border::{Door, HostServices as _};
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Handle;

use super::confinement::{Confinement, Limits};
use super::link::Link;
use super::process::Process;
use super::wire::{self, FromWorker, Hello, ToWorker};
use super::{WorkerError, WorkerSettings, program};
use crate::calls::{Calls, Limit};
use crate::library::{Inspected, LoadError, private_folder};
use crate::services::Services;
use crate::threads::too_late;

/// All that every worker of one engine is started with: the same bytes, whatever becomes of the file.
pub(super) struct Start {
    pub(super) file: Inspected,
    pub(super) copies_folder: PathBuf,
    pub(super) settings: WorkerSettings,
    pub(super) config: Value,
    pub(super) services: Arc<Services>,
    pub(super) calls: Arc<Calls>,
    pub(super) create: Duration,
    pub(super) recorded_clock: bool,
    pub(super) runtime: Handle,
}

/// A worker with its engine.
pub(super) struct Started {
    pub(super) link: Link,
    pub(super) info: EngineInfo,
    pub(super) confinement: Confinement,
    /// Kills it, unless somebody takes it over.
    pub(super) unclaimed: Fallen,
}

/// Why it did not come to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("it needs the host to have {}", .0.join(", "))]
    Missing(Vec<String>),
    #[error("it could not be created: {0}")]
    Create(EngineError),
}

impl Start {
    /// Starts worker `number`. Takes its time: not for a thread that others wait for.
    pub(super) fn begin(&self, number: u64) -> Result<Started, StartError> {
        let program = program::find(self.settings.program.as_deref()).map_err(WorkerError::from)?;
        let id = &self.file.meta.id;
        let copy = self.file.copy(&self.copies_folder)?;
        let failed = |source| WorkerError::Start { program: shown(&program), source };
        let folder = empty_folder(&self.copies_folder).map_err(failed)?;
        let (process, socket) = Process::spawn(&program, &folder, id).map_err(failed)?;
        let fallen = Fallen(Some(process.clone()));
        let (info, confinement) = self.greet(&program, &process, &socket, copy.path())?;
        self.is_itself(&info)?;
        let (services, runtime) = (self.services.clone(), self.runtime.clone());
        let link = Link::open(number, process, socket, services, runtime, &self.settings);
        let link = link.map_err(failed)?;
        let offered = self.services.info().capabilities;
        let missing = info.requires.iter().filter(|need| !offered.contains(need));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(StartError::Missing(missing));
        }
        self.create(&link).map_err(StartError::Create)?;
        Ok(Started { link, info, confinement, unclaimed: fallen })
    }

    /// A worker that has loaded an engine runs code that nobody vouches for, and could say anything.
    fn is_itself(&self, info: &EngineInfo) -> Result<(), LoadError> {
        let (written, running) = (self.file.meta.id.clone(), info.id.clone());
        match written == running {
            true => Ok(()),
            false => Err(LoadError::IdMismatch { path: self.file.path.clone(), written, running }),
        }
    }

    /// Says what to be, and hears what became of it.
    fn greet(
        &self,
        program: &Path,
        process: &Arc<Process>,
        mut socket: &std::os::unix::net::UnixStream,
        library: &Path,
    ) -> Result<(EngineInfo, Confinement), WorkerError> {
        let hello = Hello {
            wire: wire::WIRE,
            version: env!("CARGO_PKG_VERSION").into(),
            id: self.file.meta.id.clone(),
            in_c: self.file.meta.door == Door::C,
            library: library.to_owned(),
            origin: self.file.path.clone(),
            host: self.services.info(),
            recorded_clock: self.recorded_clock,
            limits: self.limits(library),
        };
        let mut buffer = Vec::new();
        let talk = || -> io::Result<Option<FromWorker>> {
            let _in_time = kill_after(self.settings.start(), process)?;
            wire::send(&mut socket, &ToWorker::Hello(hello))?;
            let heard = wire::receive(socket, self.settings.answer_bytes(), &mut buffer)?;
            heard.then(|| wire::decode(&buffer)).transpose()
        };
        let no_worker = |reason| WorkerError::NoWorker { program: shown(program), reason };
        match talk() {
            Ok(Some(FromWorker::Loaded { info, confinement })) => Ok((info, confinement)),
            Ok(Some(FromWorker::Refused { reason })) => Err(WorkerError::Refused { reason }),
            Ok(Some(_)) => Err(no_worker("spoke before it was asked".into())),
            Ok(None) => Err(no_worker(obituary(process))),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(no_worker(format!("sent {error}")))
            }
            Err(_) => Err(no_worker(obituary(process))),
        }
    }

    fn limits(&self, library: &Path) -> Limits {
        let mut readable = self.settings.readable.clone();
        readable.push(library.to_owned());
        Limits {
            memory_bytes: self.settings.memory_mib.saturating_mul(1024 * 1024),
            open_files: self.settings.open_files,
            readable,
        }
    }

    fn create(&self, link: &Link) -> Result<()> {
        let call = self.calls.begin(Limit::fixed(self.create), None);
        let mut flight = link.create(&call, self.config.clone());
        let (tell, told) = mpsc::channel();
        self.runtime.spawn(async move {
            let _ = tell.send(flight.answer().await);
        });
        match told.recv_timeout(self.create) {
            Ok(Some(answer)) => answer.map(drop),
            Ok(None) => Err(dead(&link.crashed().unwrap_or_default())),
            Err(_) => {
                link.kill(None);
                let message = format!("it took longer than {} ms", self.create.as_millis());
                Err(EngineError { message, ..too_late() })
            }
        }
    }
}

/// The worker is dead.
pub(super) fn dead(reason: &str) -> EngineError {
    EngineError::new(ErrorKind::Dead, format!("its worker {reason}"))
}

/// A worker that did not get far enough is killed.
pub(super) struct Fallen(Option<Arc<Process>>);

impl Fallen {
    /// It goes on.
    pub(super) fn stands(mut self) {
        self.0 = None;
    }
}

impl Drop for Fallen {
    fn drop(&mut self) {
        if let Some(process) = &self.0 {
            process.kill(None);
        }
    }
}

/// Kills a process at its time limit, unless what is answered here is dropped before. A limit of the
/// socket would hold for each read, and a worker that says a byte now and then would never be late.
fn kill_after(limit: Duration, process: &Arc<Process>) -> io::Result<mpsc::Sender<()>> {
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
fn obituary(process: &Process) -> String {
    let (tell, told) = mpsc::channel();
    process.when_it_ends(move |reason| drop(tell.send(reason)));
    let reason = told.recv_timeout(Duration::from_secs(1));
    format!("{} before it was ready", reason.unwrap_or_else(|_| "closed its wire".into()))
}

fn shown(program: &Path) -> String {
    program.display().to_string()
}

/// The folder that all workers stand in. Nothing is ever in it.
fn empty_folder(copies: &Path) -> io::Result<PathBuf> {
    let folder = copies.join("empty");
    private_folder(&folder)?;
    std::path::absolute(folder)
}
