//! How engines follow each other on a running host.

use serde::{Deserialize, Serialize};

/// `[swap]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwapSettings {
    /// How often a running host looks whether its config has changed, in milliseconds; 0 for never.
    /// Default 500: a look is one call of the system, and nobody waits longer than that.
    pub watch_ms: u64,
    /// How long an engine that was replaced may finish its turns, in milliseconds. Default 30,000: most
    /// turns end within; longer ones go on with the new engine.
    pub drain_ms: u64,
    /// How long an engine that was replaced stays ready to serve again, in milliseconds. Default 60,000:
    /// what is wrong with a new engine mostly shows in its first minute.
    pub warm_ms: u64,
    /// Lawful requests that a new engine has to shape until its failures are its own: before, the
    /// engine that it replaced serves again. 0 for no such trial. Default 3.
    pub proving_requests: u32,
    /// Libraries loaded by one process from which on a restart is advised. Default 64: none is ever
    /// unloaded.
    pub generations_hint: u64,
    /// The same for the sizes of their files together, in bytes. Default
    /// 104,857,600: about a hundred engines of the usual size.
    pub loaded_hint_bytes: u64,
    /// Requests that a canary must have shaped before a guard on a percentile counts. Default 20: of
    /// fewer, the 99th percentile is the slowest one.
    pub guard_requests: u64,
}

impl Default for SwapSettings {
    fn default() -> Self {
        SwapSettings {
            watch_ms: 500,
            drain_ms: 30_000,
            warm_ms: 60_000,
            proving_requests: 3,
            generations_hint: 64,
            loaded_hint_bytes: 100 * 1024 * 1024,
            guard_requests: 20,
        }
    }
}
