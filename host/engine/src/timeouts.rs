//! How long an engine may take for each call.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// How long each call may take, in milliseconds.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineTimeouts {
        /// An engine opens its storage here, and the agent's start waits for it.
        pub create_ms: u64 = 5_000, Whole(1), "ms";
        /// An engine reads a whole old session here, once.
        pub bootstrap_ms: u64 = 10_000, Whole(1), "ms";
        /// Comes with every new entry, so it has to be quick.
        pub ingest_ms: u64 = 2_000, Whole(1), "ms";
        /// Comes before every request, while somebody waits.
        pub assemble_ms: u64 = 5_000, Whole(1), "ms";
        /// Counted anew after each sign of progress; a summary of a long session takes minutes.
        pub compact_ms: u64 = 300_000, Whole(1), "ms";
        /// Whatever progress a compaction shows; a quarter of an hour ends what only pretends to go
        /// on.
        pub compact_cap_ms: u64 = 900_000, Whole(1), "ms";
        /// For what an engine does at the end of a turn; a replay ends none.
        pub after_turn_ms: u64 = 60_000, Whole(1), "ms";
        /// For an engine's housekeeping between two turns; a replay does none.
        pub maintain_ms: u64 = 60_000, Whole(1), "ms";
        /// Every hook about sub-agents; a spawn waits for it.
        pub subagent_ms: u64 = 2_000, Whole(1), "ms";
        /// An engine's last words; the process ends with or without them.
        pub dispose_ms: u64 = 2_000, Whole(1), "ms";
    }
}
