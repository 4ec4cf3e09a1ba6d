//! What one engine may make grow on the host: what it stores, and what it says in the log.

mod log;
mod store;

pub(super) use log::{LogQuota, Verdict};
pub(super) use store::StoreQuota;

use serde::{Deserialize, Serialize};

/// `[plugins.quotas]`: what each engine may make grow, wherever its code runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// What an engine may keep in the host's store, in mebibytes.
    pub store_mib: u64,
    /// Lines that an engine may write into the log within a minute.
    pub log_lines_per_minute: u64,
    /// The length of these lines together, in kibibytes.
    pub log_kib_per_minute: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas { store_mib: 256, log_lines_per_minute: 600, log_kib_per_minute: 256 }
    }
}
