//! `[swap]`: reloading engines on a running host.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[swap]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SwapSettings {
        /// How often a running host checks whether this file has changed, 0 for never; a check is one
        /// system call.
        pub watch_ms: u64 = 500, Whole(0), "ms";
        /// How long turns of a replaced engine may take to finish; longer ones continue with the new
        /// engine.
        pub drain_ms: u64 = 30_000, Whole(0), "ms";
        /// How long a replaced engine stays loaded for a rollback; most faults of a new one appear
        /// within it.
        pub warm_ms: u64 = 60_000, Whole(0), "ms";
        /// Valid plans that a new engine must make; if it fails before, the replaced engine answers
        /// the call and is active again. 0 disables the trial.
        pub trial_requests: u32 = 3, Whole(0), "requests";
        /// Number of libraries loaded by one process above which a restart is advised: none is ever
        /// unloaded.
        pub generations_hint: u64 = 64, Whole(1), "libraries";
        /// The same for the total size of their files.
        pub loaded_hint_bytes: u64 = 100 * 1024 * 1024, Whole(1), "bytes";
        /// Requests that a canary must have shaped before a guard on a percentile counts; of fewer,
        /// the 99th percentile is the slowest one.
        pub guard_requests: u64 = 20, Whole(1), "requests";
    }
}
