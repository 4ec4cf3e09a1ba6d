//! The limits of sandboxes, and how often they are restarted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[plugins.sandbox]`: the limits of every sandbox.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SandboxSettings {
        /// Program that runs as a sandbox, relative to this file; unset, the variable
        /// CTXHOST_SANDBOX, this program, or a ctxhost beside it or in PATH.
        pub program: Option<PathBuf> = None, Text;
        /// Address space of a sandbox; a long session with the engine's index takes a tenth, and a
        /// leak is stopped before it affects the machine.
        pub memory_mib: u64 = 1024, Whole(128), "mebibytes";
        /// An engine keeps its values in the host's store, so it needs next to none.
        pub open_files: u64 = 64, Whole(16), "descriptors";
        /// Files and folders that sandboxed engines may read, relative to this file, beside the
        /// system's libraries; none, because calls carry an engine's data.
        pub readable: Vec<PathBuf> = Vec::new(), List;
        /// The time to start a sandbox and load its engine; usually milliseconds, seconds on a
        /// machine that swaps.
        pub start_ms: u64 = 10_000, Whole(1), "ms";
        /// Time for a cancelled call to return before its sandbox is killed; a call that awaits
        /// something returns at once.
        pub cancel_grace_ms: u64 = 100, Whole(1), "ms";
        /// Restarts of a dead sandbox within respawn_window_ms; after that the engine is
        /// quarantined, since it would die again.
        pub respawns: u64 = 3, Whole(0), "processes";
        /// The period of respawns; deaths further apart than ten minutes are unrelated.
        pub respawn_window_ms: u64 = 600_000, Whole(1), "ms";
        /// Sessions whose transcripts a sandbox keeps, the most recently used; that of another is
        /// sent again at its next call.
        pub sessions: u64 = 64, Whole(1), "sessions";
        /// The largest frame that a sandbox may send, and what its host calls may hold: so much of
        /// requests, and so much of replies. A plan has kilobytes.
        pub answer_mib: u64 = 64, Whole(1), "mebibytes";
        /// Time for a sandbox to take up what the host sends before it is killed; it reads at once, and
        /// takes seconds on a machine that swaps.
        pub receive_ms: u64 = 10_000, Whole(1), "ms";
        /// Most threads of a sandbox, which is killed above it; one for each processor of a large
        /// machine.
        pub threads: u64 = 256, Whole(16), "threads";
        /// Processor time per minute that a sandbox may use between calls before it is killed;
        /// background work takes milliseconds.
        pub background_cpu_ms: u64 = 10_000, Whole(1), "ms";
    }
}

impl SandboxSettings {
    /// The settings with all paths resolved against `folder`.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> Self {
        for path in self.program.iter_mut().chain(&mut self.readable) {
            *path = folder.join(&*path);
        }
        self
    }

    pub(super) fn receive_limit(&self) -> Duration {
        Duration::from_millis(self.receive_ms.max(1))
    }

    pub(super) fn cancel_grace(&self) -> Duration {
        Duration::from_millis(self.cancel_grace_ms)
    }

    pub(super) fn respawn_window(&self) -> Duration {
        Duration::from_millis(self.respawn_window_ms)
    }

    /// The largest frame that is accepted from a sandbox, in bytes.
    pub(super) fn answer_bytes(&self) -> usize {
        usize::try_from(self.answer_mib).unwrap_or(usize::MAX).saturating_mul(1024 * 1024)
    }
}
