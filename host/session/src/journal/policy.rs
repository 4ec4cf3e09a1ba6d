//! When an append is durable.

use serde::{Deserialize, Serialize};

/// When what is appended to a session is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncPolicy {
    /// Before an append is acknowledged.
    #[default]
    Always,
    /// At the end of each turn, and before a compaction is acknowledged.
    Turn,
    /// When the operating system likes.
    Os,
}

/// How long an append waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncDemand {
    /// As the policy says of single appends.
    ByPolicy,
    /// Until it is on the disk, unless that is left to the system.
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

    pub(super) fn needs_sync(self, wait: SyncDemand) -> bool {
        match self {
            SyncPolicy::Always => true,
            SyncPolicy::Turn => wait == SyncDemand::Required,
            SyncPolicy::Os => false,
        }
    }
}
