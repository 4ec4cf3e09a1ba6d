//! The sync policy of a session.

use serde::{Deserialize, Serialize};

/// When appends are synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncPolicy {
    /// Before an append is acknowledged.
    #[default]
    Always,
    /// At the end of each turn, and before a compaction is acknowledged.
    Turn,
    /// When the operating system writes back.
    Os,
}

/// Whether an append has to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncDemand {
    /// As the policy says.
    ByPolicy,
    /// Yes, unless the policy is `os`.
    Required,
}

impl SyncPolicy {
    /// Its name in the config.
    pub fn name(self) -> &'static str {
        match self {
            SyncPolicy::Always => "always",
            SyncPolicy::Turn => "turn",
            SyncPolicy::Os => "os",
        }
    }

    pub(super) fn needs_sync(self, demand: SyncDemand) -> bool {
        match self {
            SyncPolicy::Always => true,
            SyncPolicy::Turn => demand == SyncDemand::Required,
            SyncPolicy::Os => false,
        }
    }
}
