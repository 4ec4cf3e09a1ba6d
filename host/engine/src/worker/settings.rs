//! What a worker process may use, and how often there is another one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[plugins.worker]`: limits of every worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerSettings {
    /// The program to start; unset, it is looked for.
    pub program: Option<PathBuf>,
    /// Address space of a worker, in mebibytes.
    pub memory_mib: u64,
    /// Descriptors a worker may have open.
    pub open_files: u64,
    /// What an engine may read beside the system's libraries: files and folders.
    pub readable: Vec<PathBuf>,
    /// How long a worker may take to start and to load its engine, in milliseconds.
    pub start_ms: u64,
    /// How long a call that was given up may take to let go, before the worker is killed, in
    /// milliseconds.
    pub letting_go_ms: u64,
    /// Workers that are started in place of dead ones, within `respawn_window_ms`.
    pub respawns: u64,
    /// See `respawns`, in milliseconds.
    pub respawn_window_ms: u64,
    /// Sessions whose transcripts a worker keeps.
    pub sessions: u64,
    /// The largest answer of a worker, in mebibytes.
    pub answer_mib: u64,
    /// Threads a worker may have, with the few of its own.
    pub threads: u64,
    /// Processor time that a worker may use within a minute while no call is under way, in milliseconds.
    pub background_cpu_ms: u64,
}

impl Default for WorkerSettings {
    /// The limits of facts/abi.md 5.4.
    fn default() -> Self {
        WorkerSettings {
            program: None,
            memory_mib: 1024,
            open_files: 64,
            readable: Vec::new(),
            start_ms: 10_000,
            letting_go_ms: 100,
            respawns: 3,
            respawn_window_ms: 600_000,
            sessions: 64,
            answer_mib: 64,
            threads: 256,
            background_cpu_ms: 10_000,
        }
    }
}

impl WorkerSettings {
    /// The same settings with every path taken from `folder`.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> Self {
        for path in self.program.iter_mut().chain(&mut self.readable) {
            *path = folder.join(&*path);
        }
        self
    }

    pub(super) fn start(&self) -> Duration {
        Duration::from_millis(self.start_ms)
    }

    pub(super) fn letting_go(&self) -> Duration {
        Duration::from_millis(self.letting_go_ms)
    }

    pub(super) fn respawn_window(&self) -> Duration {
        Duration::from_millis(self.respawn_window_ms)
    }

    /// The largest frame that is taken from a worker, in bytes.
    pub(super) fn answer_bytes(&self) -> usize {
        usize::try_from(self.answer_mib).unwrap_or(usize::MAX).saturating_mul(1024 * 1024)
    }
}
