//! What is known of the build of an engine while it lives, and the note that tells of its crashes.

use std::fs::File;
use std::sync::Arc;

use ctxhost_engine_api::{EngineError, ErrorKind};

use super::bundled::LEGACY;
use super::crash_marker::CrashMarker;
use super::environment::EngineEnvironment;
use super::library::EngineFile;
use super::load::EngineOpenError;
use super::quarantine::QuarantineRecord;
use super::quarantine::failure_log::FailureLog;
use super::signal_handler::{self, FixedName};

/// Who watches an engine: nobody, unless the environment keeps a book of failures.
#[derive(Debug, Default)]
pub(super) struct BuildGuard {
    id: String,
    bytes: Option<String>,
    sentinel: Option<CrashMarker>,
    /// Whether its code is of a file and runs in this process.
    is_foreign: bool,
}

impl BuildGuard {
    /// For an engine of the host's own. `legacy` is held by nobody: everything ends there.
    pub(super) fn for_bundled(
        id: &str,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        if id == LEGACY {
            return Ok(BuildGuard::default());
        }
        let bytes = format!("bundled {}", env!("CARGO_PKG_VERSION"));
        refuse_held(id, &bytes, environment)?;
        Ok(BuildGuard { id: id.into(), bytes: Some(bytes), sentinel: None, is_foreign: false })
    }

    /// For an engine of a file that is about to be loaded into this process.
    pub(super) fn for_library(
        file: &EngineFile,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_held(id, sha256, environment)?;
        let set = |book: &Arc<FailureLog>| match CrashMarker::create(book, id, sha256) {
            Ok(sentinel) => Some(sentinel),
            Err(error) => {
                tracing::warn!(engine = id, %error, "a crash of this engine would not be noted");
                None
            }
        };
        let sentinel = environment.failure_log.as_ref().and_then(set);
        signal_handler::install_exit_handlers();
        Ok(BuildGuard { id: id.clone(), bytes: Some(sha256.clone()), sentinel, is_foreign: true })
    }

    /// For an engine of a file that runs in a process of its own: what it does there ends no host.
    pub(super) fn for_sandbox(
        file: &EngineFile,
        environment: &EngineEnvironment,
    ) -> Result<BuildGuard, EngineOpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_held(id, sha256, environment)?;
        let bytes = Some(sha256.clone());
        Ok(BuildGuard { id: id.clone(), bytes, sentinel: None, is_foreign: false })
    }

    /// Which build it is.
    pub(super) fn build(&self) -> Option<&str> {
        self.bytes.as_deref()
    }

    /// From here on the engine does this.
    pub(super) fn record_stage(&self, stage: &str) {
        if let Some(sentinel) = &self.sentinel {
            sentinel.record_stage(stage);
        }
    }

    /// Does something inside the engine on this thread.
    pub(super) fn run<T>(&self, stage: &str, work: impl FnOnce() -> T) -> T {
        self.record_stage(stage);
        self.thread_guard().run(work)
    }

    /// The same for another thread, which may outlive this.
    pub(super) fn thread_guard(&self) -> ThreadGuard {
        let name = self.is_foreign.then(|| FixedName::new(&self.id));
        ThreadGuard { name, note: self.sentinel.as_ref().map(CrashMarker::file) }
    }

    /// Writes down that opening it broke. A setting that it refuses is no breakage: it is mended in
    /// the config and tried again.
    pub(super) fn record_failure(
        &self,
        operation: &str,
        error: &EngineError,
        environment: &EngineEnvironment,
    ) {
        let is_breakage =
            matches!(error.kind, ErrorKind::Panicked | ErrorKind::Deadline | ErrorKind::Dead);
        let Some(book) = environment.call_failure_log().filter(|_| is_breakage) else { return };
        let record = QuarantineRecord {
            id: self.id.clone(),
            bytes: self.bytes.clone(),
            operation: operation.into(),
            reason: error.message.clone(),
            failed_at_ms: environment.clock.now_ms(),
        };
        if let Err(error) = book.record_failure(&record) {
            tracing::warn!(engine = self.id, %error, "failure not written down");
        }
    }
}

/// The watch over one thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadGuard {
    /// Of an engine from a file; whatever else runs is of this program.
    name: Option<FixedName>,
    note: Option<Arc<File>>,
}

impl ThreadGuard {
    /// Does something inside the engine on this thread.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.name.map(|name| signal_handler::enter_engine(name, self.note.clone()));
        work()
    }

    /// This thread runs nothing but the engine, until [`ThreadGuard::unbind_thread`].
    pub(super) fn bind_thread(&self) {
        if let Some(name) = self.name {
            signal_handler::bind_thread(name, self.note.as_deref());
        }
    }

    /// It runs the engine no more.
    pub(super) fn unbind_thread(&self) {
        if self.name.is_some() {
            signal_handler::unbind_thread();
        }
    }
}

fn refuse_held(
    id: &str,
    bytes: &str,
    environment: &EngineEnvironment,
) -> Result<(), EngineOpenError> {
    match environment.failure_log.as_ref().and_then(|book| book.active_hold(id, bytes)) {
        Some(record) => {
            Err(EngineOpenError::Quarantined { id: id.into(), record: Box::new(record) })
        }
        None => Ok(()),
    }
}
