//! Waits for changes of an engine's sources.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::{DevError, EngineProject, cannot};

/// How long no file may change before a change is reported.
const QUIET: Duration = Duration::from_millis(150);

/// Watches the sources of a project.
#[derive(Debug)]
pub struct SourceWatcher {
    project: EngineProject,
    events: Receiver<notify::Result<Event>>,
    /// Stops watching when dropped.
    _watcher: RecommendedWatcher,
}

impl SourceWatcher {
    /// Starts watching. The next [`wait`](Self::wait) reports changes from now on.
    ///
    /// # Errors
    ///
    /// [`DevError::Io`], if the system cannot watch the folder.
    pub fn start(project: &EngineProject) -> Result<SourceWatcher, DevError> {
        let failed = || cannot(format!("watch {}", project.folder().display()));
        let (send, events) = mpsc::channel();
        let mut watcher = notify::recommended_watcher(send).map_err(failed())?;
        // Not recursive: the build output is below the folder and changes constantly.
        watcher.watch(project.folder(), RecursiveMode::NonRecursive).map_err(failed())?;
        for folder in project.source_folders() {
            watcher.watch(&folder, RecursiveMode::Recursive).map_err(failed())?;
        }
        Ok(SourceWatcher { project: project.clone(), events, _watcher: watcher })
    }

    /// Waits until sources have changed and no further changes follow; returns the first changed file.
    ///
    /// # Errors
    ///
    /// [`DevError::Io`], if the watch ends.
    pub fn wait(&self) -> Result<PathBuf, DevError> {
        let gone =
            || DevError::Io { action: "watch".into(), reason: "the file watcher stopped".into() };
        let first = loop {
            let event = self.events.recv().map_err(|_| gone())?;
            if let Some(path) = self.source_of(event) {
                break path;
            }
        };
        loop {
            // Editors write a file in several steps and a checkout writes many: the build starts
            // after the last one.
            match self.events.recv_timeout(QUIET) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(first),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    /// The source file of an event. Read accesses are ignored, because builds cause them.
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
        // Editors write a new file and rename it over the old one.
        fs::write(root.join("src/lib.rs.new"), "mod a;").unwrap();
        fs::rename(root.join("src/lib.rs.new"), root.join("src/lib.rs")).unwrap();
        let changed = watch.wait().unwrap();
        assert!(changed.starts_with(root.join("src")), "{}", changed.display());
    }
}
