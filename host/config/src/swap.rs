//! How engines follow each other on a running host.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[swap]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SwapSettings {
        /// How often a running host looks whether this file has changed, 0 for never; a look is one
        /// call of the system, and half a second is no wait.
        pub watch_ms: u64 = 500, Whole(0), "ms";
        /// How long an engine that was replaced may finish its turns; longer ones go on with the
        /// new engine.
        pub drain_ms: u64 = 30_000, Whole(0), "ms";
        /// How long an engine that was replaced stays ready to serve again; what is wrong with a
        /// new one mostly shows in its first minute.
        pub warm_ms: u64 = 60_000, Whole(0), "ms";
        /// Lawful requests a new engine has to shape; where it fails before, the one it replaced
        /// answers the call and serves again. 0 for no such trial.
        pub proving_requests: u32 = 3, Whole(0), "requests";
        /// From so many loaded by one process on a restart is advised: none is ever unloaded.
        pub generations_hint: u64 = 64, Whole(1), "libraries";
        /// The same for the sizes of their files together.
        pub loaded_hint_bytes: u64 = 100 * 1024 * 1024, Whole(1), "bytes";
        /// What a canary must have shaped before a guard on a percentile counts; of fewer, the 99th
        /// percentile is the slowest one.
        pub guard_requests: u64 = 20, Whole(1), "requests";
    }
}
