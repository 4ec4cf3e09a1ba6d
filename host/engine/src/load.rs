//! Opening an engine: its file is read, its door found, and the engine created where it is to run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::*;
use serde_json::Value;

use super::backend::{EngineBackend, InProcess};
use super::build_guard::BuildGuard;
use super::bundled::bundled;
use super::calls::CallTable;
use super::environment::EngineEnvironment;
use super::library::LoadError;
use super::quarantine::failure_log::FailureRecord;
use super::sandbox::{SandboxError, SandboxSupervisor};
use super::services::EngineServices;
use super::spec::{EngineSource, EngineSpec};
use super::threads::{EngineThreads, Isolation};

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EngineOpenError {
    /// No engine of that name is linked in.
    #[error("no bundled engine is called {id:?}")]
    NotBundled {
        /// The name.
        id: String,
    },
    /// The file did not become an engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file holds another engine.
    #[error(
        "{} holds engine {found:?}, but the config calls it {configured:?}; an engine has one id everywhere: write [plugins.entries.{found}] and, in the slot, {found:?}",
        path.display()
    )]
    OtherId {
        /// The file.
        path: PathBuf,
        /// The name in the config.
        configured: String,
        /// The name in the file.
        found: String,
    },
    /// Its bytes are not the ones that were found good.
    #[error("{name}: {what}")]
    HashMismatch {
        /// The engine, or its file.
        name: String,
        /// Both digests, whose word the pin is, and the way out.
        what: String,
    },
    /// The operator wants it refused.
    #[error("engine {name:?} is not loaded: {reason}")]
    Untrusted {
        /// The engine, or its file.
        name: String,
        /// Why, and what would change it.
        reason: String,
    },
    /// It failed before, perhaps in another process.
    #[error("engine {id:?} is in quarantine: {}; `ctxhost engines release {id}` lets it serve again", record.summary())]
    Quarantined {
        /// The engine.
        id: String,
        /// What is known against it.
        record: Box<FailureRecord>,
    },
    /// It needs what this host does not have.
    #[error("engine {id:?} needs the host to have {}, which it does not here", missing.join(", "))]
    MissingCapabilities {
        /// The engine.
        id: String,
        /// The capabilities.
        missing: Vec<String>,
    },
    /// Its `create` failed.
    #[error("engine {id:?} could not be created: {error}")]
    Create {
        /// The engine.
        id: String,
        /// What it said.
        error: Box<EngineError>,
    },
    /// The system gave it no threads.
    #[error("no threads for engine {id:?}: {source}")]
    Threads {
        /// The engine.
        id: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It has no process to sit in.
    #[error("no worker for engine {id:?}: {source}")]
    Sandbox {
        /// The engine.
        id: String,
        /// Why.
        source: SandboxError,
    },
    /// It is part of a program, and a worker loads a file.
    #[error(
        "engine {id:?} is linked in; isolation = \"process\" is for engines that come from a file"
    )]
    NotALibrary {
        /// The engine.
        id: String,
    },
}

/// An engine that runs, with what it said of itself and who watches over it.
pub(super) type OpenedEngine = (EngineInfo, EngineBackend, BuildGuard);

/// Opens an engine as far from the host as its spec wants it.
///
/// # Errors
///
/// [`EngineOpenError`].
pub(super) fn open_backend(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
    calls: &Arc<CallTable>,
) -> Result<OpenedEngine, EngineOpenError> {
    match spec.isolation {
        Isolation::Process => open_sandbox(spec, environment, calls),
        Isolation::Inline | Isolation::Thread => open_in_process(spec, environment, calls),
    }
}

/// An engine in this process.
fn open_in_process(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
    calls: &Arc<CallTable>,
) -> Result<OpenedEngine, EngineOpenError> {
    let (door, watch) = open_factory(spec, environment)?;
    let failed = |error| EngineOpenError::Create { id: spec.id.clone(), error: Box::new(error) };
    let info = door.info().map_err(failed)?;
    let missing: Vec<String> = {
        let offered = environment.capabilities();
        info.requires.iter().filter(|need| !offered.contains(need)).cloned().collect()
    };
    if !missing.is_empty() {
        return Err(EngineOpenError::MissingCapabilities { id: info.id, missing });
    }
    let threads = EngineThreads::open(&info.id, spec.isolation, &watch)
        .map_err(|source| EngineOpenError::Threads { id: info.id.clone(), source })?;
    let services = EngineServices::new(&info.id, environment, &spec.quotas, calls.clone());
    let limit = Duration::from_millis(environment.timeouts.create_ms);
    let handle = create_within(limit, door, services, spec.config.clone(), &watch)
        .inspect_err(|error| watch.record_failure("create", error, environment))
        .map_err(|error| EngineOpenError::Create { id: info.id.clone(), error: Box::new(error) })?;
    watch.record_stage("calls");
    let here = InProcess {
        id: info.id.clone(),
        handle: Some(handle),
        threads,
        guard: watch.thread_guard(),
        limit: Duration::from_millis(environment.timeouts.dispose_ms),
    };
    Ok((info, EngineBackend::InProcess(Box::new(here)), watch))
}

/// An engine in a process of its own.
fn open_sandbox(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
    calls: &Arc<CallTable>,
) -> Result<OpenedEngine, EngineOpenError> {
    let EngineSource::File(path) = &spec.source else {
        return Err(EngineOpenError::NotALibrary { id: spec.id.clone() });
    };
    let file = spec.check_file(path)?;
    let watch = BuildGuard::for_sandbox(&file, environment)?;
    let (info, sandbox) =
        SandboxSupervisor::open(spec, file, environment, calls).inspect_err(|error| {
            if let EngineOpenError::Create { error, .. } = error {
                watch.record_failure("create", error, environment);
            }
        })?;
    Ok((info, EngineBackend::Sandbox(Box::new(sandbox)), watch))
}

fn open_factory(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
) -> Result<(EngineFactory, BuildGuard), EngineOpenError> {
    let path = match &spec.source {
        EngineSource::Bundled => {
            let door = bundled(&spec.id);
            let door = door.ok_or_else(|| EngineOpenError::NotBundled { id: spec.id.clone() })?;
            return Ok((door, BuildGuard::for_bundled(&spec.id, environment)?));
        }
        EngineSource::Linked(linked) => return Ok((linked.door, BuildGuard::default())),
        EngineSource::File(path) => path,
    };
    let inspected = spec.check_file(path)?;
    let watch = BuildGuard::for_library(&inspected, environment)?;
    let door = watch.run("load", || inspected.load(&environment.copies_folder))?;
    Ok((door, watch))
}

/// `create` is a plain function, so only a thread of its own can be left behind when it hangs.
fn create_within(
    limit: Duration,
    door: EngineFactory,
    services: EngineServices,
    config: Value,
    watch: &BuildGuard,
) -> Result<EngineHandle> {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::Builder::new().name("engine-create".into());
    watch.record_stage("create");
    let on_thread = watch.thread_guard();
    let spawned = thread.spawn(move || {
        let handle = on_thread.run(|| door.create(Arc::new(services), &config));
        let _ = send.send(handle);
    });
    spawned.map_err(|error| EngineError::failed(format!("no thread to create it on: {error}")))?;
    receive.recv_timeout(limit).unwrap_or_else(|_| {
        let message = format!("it took longer than {} ms", limit.as_millis());
        Err(EngineError::new(ErrorKind::Deadline, message))
    })
}
