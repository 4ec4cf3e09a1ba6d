//! Opens an engine: reads its file, finds its factory, creates it in this process or in a sandbox.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::*;
use serde_json::Value;

use super::backend::{EngineBackend, InProcess};
use super::build_guard::BuildGuard;
use super::bundled::bundled;
use super::calls::CallTable;
use super::engine_texts::{limit_error, limit_info, limit_names};
use super::environment::EngineEnvironment;
use super::error::EngineOpenError;
use super::sandbox::supervisor::SandboxSupervisor;
use super::services::EngineServices;
use super::spec::{EngineSource, EngineSpec};
use super::threads::{EngineThreads, Isolation};

/// What an engine states about itself, where it runs, and the guard of its build.
pub(super) type OpenedEngine = (EngineInfo, Arc<dyn EngineBackend>, BuildGuard);

/// Opens an engine with the isolation of its spec.
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

fn open_in_process(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
    calls: &Arc<CallTable>,
) -> Result<OpenedEngine, EngineOpenError> {
    let (factory, guard) = open_factory(spec, environment)?;
    let failed = |error| EngineOpenError::Create {
        id: spec.id.clone(),
        error: Box::new(limit_error(error)),
    };
    let info = limit_info(factory.info().map_err(failed)?);
    // Before `create`, which could otherwise fail half-way with a less precise error.
    let missing: Vec<String> = {
        let offered = environment.capabilities();
        info.requires.iter().filter(|name| !offered.contains(name)).cloned().collect()
    };
    if !missing.is_empty() {
        let missing = limit_names(missing);
        return Err(EngineOpenError::MissingCapabilities { id: info.id, missing });
    }
    let is_threaded = spec.isolation != Isolation::Inline;
    let threads = is_threaded.then(|| EngineThreads::start(&info.id, &guard)).transpose();
    let threads =
        threads.map_err(|source| EngineOpenError::Threads { id: info.id.clone(), source })?;
    let services = EngineServices::new(&info.id, environment, spec, calls.clone());
    let limit_ms = environment.timeouts.create_ms;
    let handle = create_within(limit_ms, factory, services, spec.config.clone(), &guard)
        .inspect_err(|error| guard.record_failure("create", error, environment))
        .map_err(|error| EngineOpenError::Create { id: info.id.clone(), error: Box::new(error) })?;
    guard.record_stage("calls");
    let backend = InProcess {
        id: info.id.clone(),
        handle: Some(handle),
        threads,
        guard: guard.thread_guard(),
        limit: Duration::from_millis(environment.timeouts.dispose_ms),
        has_lost_thread: AtomicBool::new(false),
    };
    Ok((info, Arc::new(backend), guard))
}

fn open_sandbox(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
    calls: &Arc<CallTable>,
) -> Result<OpenedEngine, EngineOpenError> {
    let EngineSource::File(path) = &spec.source else {
        return Err(EngineOpenError::NotALibrary { id: spec.id.clone() });
    };
    let file = spec.check_file(path)?;
    let guard = BuildGuard::for_sandbox(&file, environment)?;
    let (info, sandbox) =
        SandboxSupervisor::open(spec, file, environment, calls).inspect_err(|error| {
            if let EngineOpenError::Create { error, .. } = error {
                guard.record_failure("create", error, environment);
            }
        })?;
    Ok((info, Arc::new(sandbox), guard))
}

fn open_factory(
    spec: &EngineSpec,
    environment: &EngineEnvironment,
) -> Result<(EngineFactory, BuildGuard), EngineOpenError> {
    let path = match &spec.source {
        EngineSource::Bundled => {
            let factory = bundled(&spec.id);
            let factory =
                factory.ok_or_else(|| EngineOpenError::NotBundled { id: spec.id.clone() })?;
            return Ok((factory, BuildGuard::for_bundled(&spec.id, environment)?));
        }
        EngineSource::Linked(linked) => return Ok((linked.factory, BuildGuard::default())),
        EngineSource::File(path) => path,
    };
    let file = spec.check_file(path)?;
    let guard = BuildGuard::for_library(&file, environment)?;
    let factory = guard.run("load", || file.load(&environment.copies_folder))?;
    Ok((factory, guard))
}

fn create_within(
    limit_ms: u64,
    factory: EngineFactory,
    services: EngineServices,
    config: Value,
    guard: &BuildGuard,
) -> Result<EngineHandle> {
    let (send, receive) = mpsc::channel();
    // `create` is synchronous and may hang: only a thread of its own can be abandoned then.
    let thread = std::thread::Builder::new().name("engine-create".into());
    guard.record_stage("create");
    let on_thread = guard.thread_guard();
    let spawned = thread.spawn(move || {
        let handle = on_thread.run(|| factory.create(Arc::new(services), &config));
        let _ = send.send(handle.map_err(limit_error));
    });
    spawned.map_err(|error| EngineError::failed(format!("no thread to create it on: {error}")))?;
    receive.recv_timeout(Duration::from_millis(limit_ms)).unwrap_or_else(|_| {
        let message = format!("exceeded {} ms (timeouts.create_ms)", group_thousands(limit_ms));
        Err(EngineError::new(ErrorKind::Deadline, message))
    })
}
