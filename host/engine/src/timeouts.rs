//! How long an engine may take for each call.

use serde::{Deserialize, Serialize};

/// How long each call may take, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Building the engine; it should do no work there.
    pub create_ms: u64,
    /// Taking over a session's history.
    pub bootstrap_ms: u64,
    /// Taking note of new entries, on the way of every turn.
    pub ingest_ms: u64,
    /// Choosing what the model sees, on the way of every request.
    pub assemble_ms: u64,
    /// A compaction without a sign of progress; a model may need minutes.
    pub compact_ms: u64,
    /// A compaction in all.
    pub compact_cap_ms: u64,
    /// What follows a turn.
    pub after_turn_ms: u64,
    /// Housekeeping in the background.
    pub maintain_ms: u64,
    /// Preparing and ending sub-agents, and answering for tools and status.
    pub subagent_ms: u64,
    /// Letting go of everything.
    pub dispose_ms: u64,
}

impl Default for Timeouts {
    /// The limits of facts/abi.md 5.2; compaction as the seed has it.
    fn default() -> Self {
        Timeouts {
            create_ms: 5_000,
            bootstrap_ms: 10_000,
            ingest_ms: 2_000,
            assemble_ms: 5_000,
            compact_ms: 300_000,
            compact_cap_ms: 900_000,
            after_turn_ms: 60_000,
            maintain_ms: 60_000,
            subagent_ms: 2_000,
            dispose_ms: 2_000,
        }
    }
}
