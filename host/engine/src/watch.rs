//! What is known of the build of an engine while it lives, and the note that tells of its crashes.

use std::fs::File;
use std::sync::Arc;

use ctxhost_engine_api::{EngineError, ErrorKind};

use super::bundled::LEGACY;
use super::crash::{self, Name};
use super::environment::Environment;
use super::library::Inspected;
use super::opening::OpenError;
use super::quarantine::QuarantineRecord;
use super::quarantine::book::FailureBook;
use super::sentinel::Sentinel;

/// Who watches an engine: nobody, unless the environment keeps a book of failures.
#[derive(Debug, Default)]
pub(super) struct Watch {
    id: String,
    bytes: Option<String>,
    sentinel: Option<Sentinel>,
    /// Whether its code is of a file and runs in this process.
    is_foreign: bool,
}

impl Watch {
    /// For an engine of the host's own. `legacy` is held by nobody: everything ends there.
    pub(super) fn bundled(id: &str, environment: &Environment) -> Result<Watch, OpenError> {
        if id == LEGACY {
            return Ok(Watch::default());
        }
        let bytes = format!("bundled {}", env!("CARGO_PKG_VERSION"));
        refuse_held(id, &bytes, environment)?;
        Ok(Watch { id: id.into(), bytes: Some(bytes), sentinel: None, is_foreign: false })
    }

    /// For an engine of a file that is about to be loaded into this process.
    pub(super) fn file(file: &Inspected, environment: &Environment) -> Result<Watch, OpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_held(id, sha256, environment)?;
        let set = |book: &Arc<FailureBook>| match Sentinel::set(book, id, sha256) {
            Ok(sentinel) => Some(sentinel),
            Err(error) => {
                tracing::warn!(engine = id, %error, "a crash of this engine would not be noted");
                None
            }
        };
        let sentinel = environment.failures.as_ref().and_then(set);
        crash::watch_exits();
        Ok(Watch { id: id.clone(), bytes: Some(sha256.clone()), sentinel, is_foreign: true })
    }

    /// For an engine of a file that runs in a process of its own: what it does there ends no host.
    pub(super) fn apart(file: &Inspected, environment: &Environment) -> Result<Watch, OpenError> {
        let (id, sha256) = (&file.meta.id, &file.sha256);
        refuse_held(id, sha256, environment)?;
        let bytes = Some(sha256.clone());
        Ok(Watch { id: id.clone(), bytes, sentinel: None, is_foreign: false })
    }

    /// Which build it is.
    pub(super) fn bytes(&self) -> Option<&str> {
        self.bytes.as_deref()
    }

    /// From here on the engine does this.
    pub(super) fn begins(&self, stage: &str) {
        if let Some(sentinel) = &self.sentinel {
            sentinel.begins(stage);
        }
    }

    /// Does something inside the engine on this thread.
    pub(super) fn inside<T>(&self, stage: &str, work: impl FnOnce() -> T) -> T {
        self.begins(stage);
        self.of_thread().inside(work)
    }

    /// The same for another thread, which may outlive this.
    pub(super) fn of_thread(&self) -> ThreadWatch {
        let name = self.is_foreign.then(|| Name::of(&self.id));
        ThreadWatch { name, note: self.sentinel.as_ref().map(Sentinel::file) }
    }

    /// Writes down that opening it broke. A setting that it refuses is no breakage: it is mended in
    /// the config and tried again.
    pub(super) fn failed(&self, operation: &str, error: &EngineError, environment: &Environment) {
        let is_breakage =
            matches!(error.kind, ErrorKind::Panicked | ErrorKind::Deadline | ErrorKind::Dead);
        let Some(book) = environment.kept_failures().filter(|_| is_breakage) else { return };
        let record = QuarantineRecord {
            id: self.id.clone(),
            bytes: self.bytes.clone(),
            operation: operation.into(),
            reason: error.message.clone(),
            failed_at_ms: environment.clock.now_ms(),
        };
        if let Err(error) = book.failed(&record) {
            tracing::warn!(engine = self.id, %error, "failure not written down");
        }
    }
}

/// The watch over one thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadWatch {
    /// Of an engine from a file; whatever else runs is of this program.
    name: Option<Name>,
    note: Option<Arc<File>>,
}

impl ThreadWatch {
    /// Does something inside the engine on this thread.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.name.map(|name| crash::enter(name, self.note.clone()));
        work()
    }

    /// This thread runs nothing but the engine, until [`ThreadWatch::leave`].
    pub(super) fn stay(&self) {
        if let Some(name) = self.name {
            crash::stay(name, self.note.as_deref());
        }
    }

    /// It runs the engine no more.
    pub(super) fn leave(&self) {
        if self.name.is_some() {
            crash::leave();
        }
    }
}

fn refuse_held(id: &str, bytes: &str, environment: &Environment) -> Result<(), OpenError> {
    match environment.failures.as_ref().and_then(|book| book.hold(id, bytes)) {
        Some(record) => Err(OpenError::Held { id: id.into(), record: Box::new(record) }),
        None => Ok(()),
    }
}
