//! What a worker process may use, and how often there is another one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[plugins.sandbox]`: limits of every worker process.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SandboxSettings {
        /// The ctxhost that engine processes are, relative to this file; unset, the variable
        /// CTXHOST_WORKER, then this program, then a ctxhost beside it or in PATH.
        pub program: Option<PathBuf> = None, Text;
        /// The address space of an engine's process; a long session and the engine's own index take
        /// a tenth of it, a leak is stopped before the machine feels it.
        pub memory_mib: u64 = 1024, Whole(128), "mebibytes";
        /// An engine keeps its values in the host's store, so it needs next to none.
        pub open_files: u64 = 64, Whole(16), "descriptors";
        /// Files and folders that engines in processes may read, relative to this file, beside the
        /// system's libraries; none, because what an engine needs comes with its calls.
        pub readable: Vec<PathBuf> = Vec::new(), List;
        /// For a process to start and load its engine; milliseconds as a rule, seconds on a machine
        /// that swaps.
        pub start_ms: u64 = 10_000, Whole(1), "ms";
        /// For a call that took too long to let go, before its process is killed; whoever waits
        /// somewhere lets go at once.
        pub letting_go_ms: u64 = 100, Whole(1), "ms";
        /// Started in place of dead ones within respawn_window_ms; after that the engine is in
        /// quarantine, since what dies so often dies again.
        pub respawns: u64 = 3, Whole(0), "processes";
        /// Ten minutes: deaths that are further apart are accidents.
        pub respawn_window_ms: u64 = 600_000, Whole(1), "ms";
        /// Whose transcripts a process keeps, the newest; another one is sent whole when it is
        /// talked in again.
        pub sessions: u64 = 64, Whole(1), "sessions";
        /// The most that a process may say at once; a plan is kilobytes, and what is longer is no
        /// plan.
        pub answer_mib: u64 = 64, Whole(1), "mebibytes";
        /// Of an engine's process, which is killed above it; one for each processor of a large
        /// machine, and far from what a machine feels.
        pub threads: u64 = 256, Whole(16), "threads";
        /// Processor time within a minute that an engine's process may use while no call is under
        /// way, before it is killed; what an engine does behind its answers takes milliseconds, and
        /// nobody waits for what takes more.
        pub background_cpu_ms: u64 = 10_000, Whole(1), "ms";
    }
}

impl SandboxSettings {
    /// The same settings with every path taken from `folder`.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> Self {
        for path in self.program.iter_mut().chain(&mut self.readable) {
            *path = folder.join(&*path);
        }
        self
    }

    pub(super) fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_ms)
    }

    pub(super) fn cancel_grace(&self) -> Duration {
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
