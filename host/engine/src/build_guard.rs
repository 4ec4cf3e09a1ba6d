//! The build of an open engine, and the attribution of crashes to it.

use std::fs::File;
use std::sync::Arc;

use ctxhost_engine_api::{EngineError, ErrorKind};

use super::bundled::LEGACY;
use super::crash_marker::CrashMarker;
use super::environment::EngineEnvironment;
use super::error::EngineOpenError;
use super::library::EngineFile;
use super::quarantine::failure_log::FailureLog;
use super::quarantine::record::QuarantineRecord;
use super::signal_handler::{self, FixedName};

/// The build of an engine; the default guards nothing and records nothing.
#[derive(Debug, Default)]
pub(super) struct BuildGuard {
    id: String,
    bytes: Option<String>,
    marker: Option<CrashMarker>,
    /// Whether code from a file runs in this process.
    is_foreign: bool,
}

impl BuildGuard {
    /// For a bundled engine.
    pub(super) fn for_bundled(
        id: &str,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        // Every other engine falls back to `legacy`, so it is never quarantined.
        if id == LEGACY {
            return Ok(BuildGuard::default());
        }
        let bytes = format!("bundled {}", env!("CARGO_PKG_VERSION"));
        refuse_quarantined(id, &bytes, environment)?;
        Ok(BuildGuard { id: id.into(), bytes: Some(bytes), marker: None, is_foreign: false })
    }

    /// For a library that is about to be loaded into this process.
    pub(super) fn for_library(
        file: &EngineFile,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_quarantined(id, sha256, environment)?;
        let create = |log: &Arc<FailureLog>| match log.create_marker(id, sha256) {
            Ok(marker) => Some(marker),
            Err(error) => {
                tracing::warn!(engine = id, %error, "no crash marker: a crash of this engine would not be attributed");
                None
            }
        };
        let marker = environment.failure_log.as_ref().and_then(create);
        signal_handler::install_exit_handlers();
        Ok(BuildGuard { id: id.clone(), bytes: Some(sha256.clone()), marker, is_foreign: true })
    }

    /// For a library that runs in a sandbox, where a crash does not end the host.
    pub(super) fn for_sandbox(
        file: &EngineFile,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_quarantined(id, sha256, environment)?;
        let bytes = Some(sha256.clone());
        Ok(BuildGuard { id: id.clone(), bytes, marker: None, is_foreign: false })
    }

    /// The build: the SHA-256 of the file in hex, or `bundled <version>`.
    pub(super) fn build(&self) -> Option<&str> {
        self.bytes.as_deref()
    }

    /// Records that a stage of the engine begins.
    pub(super) fn record_stage(&self, stage: &str) {
        if let Some(marker) = &self.marker {
            marker.record_stage(stage);
        }
    }

    /// Runs engine code on this thread, as a stage.
    pub(super) fn run<T>(&self, stage: &str, work: impl FnOnce() -> T) -> T {
        self.record_stage(stage);
        self.thread_guard().run(work)
    }

    /// The guard for another thread, which may outlive this one.
    pub(super) fn thread_guard(&self) -> ThreadGuard {
        let name = self.is_foreign.then(|| FixedName::new(&self.id));
        ThreadGuard { name, marker: self.marker.as_ref().map(CrashMarker::file) }
    }

    /// Records that opening the engine failed.
    pub(super) fn record_failure(
        &self,
        operation: &str,
        error: &EngineError,
        environment: &EngineEnvironment,
    ) {
        // A rejected setting does not count: the operator corrects it and starts again.
        let is_fault =
            matches!(error.kind, ErrorKind::Panicked | ErrorKind::Deadline | ErrorKind::Dead);
        let Some(log) = environment.call_failure_log().filter(|_| is_fault) else { return };
        let record = QuarantineRecord {
            id: self.id.clone(),
            bytes: self.bytes.clone(),
            operation: operation.into(),
            reason: error.message.clone(),
            failed_at_ms: environment.clock.now_ms(),
        };
        if let Err(error) = log.record_failure(&record) {
            tracing::warn!(engine = self.id, %error, "cannot write the quarantine record");
        }
    }
}

/// Attributes crashes on one thread to an engine.
#[derive(Clone, Debug)]
pub(super) struct ThreadGuard {
    /// The engine, where its code is from a file; `None` for code of this program.
    name: Option<FixedName>,
    marker: Option<Arc<File>>,
}

impl ThreadGuard {
    /// Runs engine code on this thread.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _scope = self.name.map(|name| signal_handler::enter_engine(name, self.marker.clone()));
        work()
    }

    /// Attributes this thread to the engine until [`ThreadGuard::unbind_thread`].
    pub(super) fn bind_thread(&self) {
        if let Some(name) = self.name {
            signal_handler::bind_thread(name, self.marker.as_deref());
        }
    }

    /// Ends [`ThreadGuard::bind_thread`].
    pub(super) fn unbind_thread(&self) {
        if self.name.is_some() {
            signal_handler::unbind_thread();
        }
    }
}

fn refuse_quarantined(
    id: &str,
    bytes: &str,
    environment: &EngineEnvironment,
) -> Result<(), EngineOpenError> {
    match environment.failure_log.as_ref().and_then(|log| log.active_hold(id, bytes)) {
        Some(record) => {
            Err(EngineOpenError::Quarantined { id: id.into(), record: Box::new(record) })
        }
        None => Ok(()),
    }
}
