//! Waiting for a change of an engine's sources.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::{DevError, EngineProject, cannot};

/// How long nothing may change before a change counts as over: an editor writes a file in several steps,
/// and a checkout writes many.
const QUIET: Duration = Duration::from_millis(150);

/// The sources of a project, watched.
#[derive(Debug)]
pub struct SourceWatcher {
    project: EngineProject,
    events: Receiver<notify::Result<Event>>,
    /// Watches for as long as it is there.
    _watcher: RecommendedWatcher,
}

impl SourceWatcher {
    /// Begins to watch. What changes from here on is told by the next [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`DevError::Io`] where the system does not let it.
    pub fn start(project: &EngineProject) -> Result<SourceWatcher, DevError> {
        let failed = || cannot(format!("watch {}", project.folder().display()));
        let (send, events) = mpsc::channel();
        let mut watcher = notify::recommended_watcher(send).map_err(failed())?;
        watcher.watch(project.folder(), RecursiveMode::NonRecursive).map_err(failed())?;
        for folder in project.source_folders() {
            watcher.watch(&folder, RecursiveMode::Recursive).map_err(failed())?;
        }
        Ok(SourceWatcher { project: project.clone(), events, _watcher: watcher })
    }

    /// Waits until sources have changed and are quiet again; answers the first that did.
    ///
    /// # Errors
    ///
    /// [`DevError::Io`] where the system stops telling.
    pub fn wait(&self) -> Result<PathBuf, DevError> {
        let gone = || DevError::Io {
            action: "watch".into(),
            reason: "the system tells nothing more".into(),
        };
        let first = loop {
            let event = self.events.recv().map_err(|_| gone())?;
            if let Some(path) = self.source_of(event) {
                break path;
            }
        };
        loop {
            match self.events.recv_timeout(QUIET) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(first),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    /// The source that an event is about. Reading is no change: builds do little else.
    fn source_of(&self, event: notify::Result<Event>) -> Option<PathBuf> {
        let event = event.ok().filter(|event| !matches!(event.kind, EventKind::Access(_)))?;
        event.paths.into_iter().find(|path| self.project.is_source(path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_saved_source_ends_the_waiting_and_what_a_build_writes_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::write(root.join("Cargo.toml"), "").unwrap();
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/lib.rs"), "").unwrap();
        let watch = SourceWatcher::start(&EngineProject::open(&root).unwrap()).unwrap();
        fs::write(root.join("Cargo.lock"), "locked").unwrap();
        fs::create_dir(root.join("target")).unwrap();
        let _ = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        // As editors save: beside, then over.
        fs::write(root.join("src/lib.rs.new"), "mod a;").unwrap();
        fs::rename(root.join("src/lib.rs.new"), root.join("src/lib.rs")).unwrap();
        let changed = watch.wait().unwrap();
        assert!(changed.starts_with(root.join("src")), "{}", changed.display());
    }
}
