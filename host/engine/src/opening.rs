//! Opening an engine: its file is read, its door found, and the engine created where it is to run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ctxhost_engine_api::border::{EngineDoor, EngineHandle};
use ctxhost_engine_api::*;
use serde_json::Value;

use super::backend::{Backend, InProcess};
use super::bundled::bundled;
use super::calls::Calls;
use super::environment::Environment;
use super::library::LoadError;
use super::quarantine::book::KeptRecord;
use super::services::Services;
use super::spec::{EngineSpec, Source};
use super::threads::{EngineThreads, Isolation};
use super::watch::Watch;
use super::worker::{Sandbox, WorkerError};

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    Changed {
        /// The engine, or its file.
        name: String,
        /// Both digests, whose word the pin is, and the way out.
        what: String,
    },
    /// The operator wants it refused.
    #[error("engine {name:?} is not loaded: {reason}")]
    Distrusted {
        /// The engine, or its file.
        name: String,
        /// Why, and what would change it.
        reason: String,
    },
    /// It failed before, perhaps in another process.
    #[error("engine {id:?} is in quarantine: {}; `ctxhost engines release {id}` lets it serve again", record.story())]
    Held {
        /// The engine.
        id: String,
        /// What is known against it.
        record: Box<KeptRecord>,
    },
    /// It needs what this host does not have.
    #[error("engine {id:?} needs the host to have {}, which it does not here", missing.join(", "))]
    Missing {
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
    Worker {
        /// The engine.
        id: String,
        /// Why.
        source: WorkerError,
    },
    /// It is part of a program, and a worker loads a file.
    #[error(
        "engine {id:?} is linked in; isolation = \"process\" is for engines that come from a file"
    )]
    NoFile {
        /// The engine.
        id: String,
    },
}

/// An engine that runs, with what it said of itself and who watches over it.
pub(super) type Opened = (EngineInfo, Backend, Watch);

/// Opens an engine as far from the host as its spec wants it.
///
/// # Errors
///
/// [`OpenError`].
pub(super) fn backend(
    spec: &EngineSpec,
    environment: &Environment,
    calls: &Arc<Calls>,
) -> Result<Opened, OpenError> {
    match spec.isolation {
        Isolation::Process => sandboxed(spec, environment, calls),
        Isolation::Inline | Isolation::Lane => in_process(spec, environment, calls),
    }
}

/// An engine in this process.
fn in_process(
    spec: &EngineSpec,
    environment: &Environment,
    calls: &Arc<Calls>,
) -> Result<Opened, OpenError> {
    let (door, watch) = open_door(spec, environment)?;
    let failed = |error| OpenError::Create { id: spec.id.clone(), error: Box::new(error) };
    let info = door.info().map_err(failed)?;
    let missing: Vec<String> = {
        let offered = environment.capabilities();
        info.requires.iter().filter(|need| !offered.contains(need)).cloned().collect()
    };
    if !missing.is_empty() {
        return Err(OpenError::Missing { id: info.id, missing });
    }
    let threads = EngineThreads::open(&info.id, spec.isolation, &watch)
        .map_err(|source| OpenError::Threads { id: info.id.clone(), source })?;
    let services = Services::new(&info.id, environment, &spec.quotas, calls.clone());
    let limit = Duration::from_millis(environment.timeouts.create_ms);
    let handle = create_within(limit, door, services, spec.config.clone(), &watch)
        .inspect_err(|error| watch.failed("create", error, environment))
        .map_err(|error| OpenError::Create { id: info.id.clone(), error: Box::new(error) })?;
    watch.begins("calls");
    let here = InProcess {
        id: info.id.clone(),
        handle: Some(handle),
        threads,
        watch: watch.of_thread(),
        limit: Duration::from_millis(environment.timeouts.dispose_ms),
    };
    Ok((info, Backend::InProcess(Box::new(here)), watch))
}

/// An engine in a process of its own.
fn sandboxed(
    spec: &EngineSpec,
    environment: &Environment,
    calls: &Arc<Calls>,
) -> Result<Opened, OpenError> {
    let Source::File(path) = &spec.source else {
        return Err(OpenError::NoFile { id: spec.id.clone() });
    };
    let file = spec.checked(path)?;
    let watch = Watch::apart(&file, environment)?;
    let (info, sandbox) = Sandbox::open(spec, file, environment, calls).inspect_err(|error| {
        if let OpenError::Create { error, .. } = error {
            watch.failed("create", error, environment);
        }
    })?;
    Ok((info, Backend::Sandbox(Box::new(sandbox)), watch))
}

fn open_door(
    spec: &EngineSpec,
    environment: &Environment,
) -> Result<(EngineDoor, Watch), OpenError> {
    let path = match &spec.source {
        Source::Bundled => {
            let door = bundled(&spec.id);
            let door = door.ok_or_else(|| OpenError::NotBundled { id: spec.id.clone() })?;
            return Ok((door, Watch::bundled(&spec.id, environment)?));
        }
        Source::Linked(linked) => return Ok((linked.door, Watch::default())),
        Source::File(path) => path,
    };
    let inspected = spec.checked(path)?;
    let watch = Watch::file(&inspected, environment)?;
    let door = watch.inside("load", || inspected.load(&environment.copies_folder))?;
    Ok((door, watch))
}

/// `create` is a plain function, so only a thread of its own can be left behind when it hangs.
fn create_within(
    limit: Duration,
    door: EngineDoor,
    services: Services,
    config: Value,
    watch: &Watch,
) -> Result<EngineHandle> {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::Builder::new().name("engine-create".into());
    watch.begins("create");
    let on_thread = watch.of_thread();
    let spawned = thread.spawn(move || {
        let handle = on_thread.inside(|| door.create(Arc::new(services), &config));
        let _ = send.send(handle);
    });
    spawned.map_err(|error| EngineError::failed(format!("no thread to create it on: {error}")))?;
    receive.recv_timeout(limit).unwrap_or_else(|_| {
        let message = format!("it took longer than {} ms", limit.as_millis());
        Err(EngineError::new(ErrorKind::Deadline, message))
    })
}
