//! What one engine may make grow on the host: what it stores, and what it says in the log.

mod log;
mod store;

pub(super) use log::{LogDecision, LogQuota};
pub(super) use store::StoreQuota;

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[plugins.quotas]`: what each engine may make grow, wherever its code runs.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Quotas {
        /// What an engine may keep in the host's store, 4 KiB for each value beside its bytes;
        /// bytes by hash, which go with their sessions, count for an hour. An index of a long
        /// session takes a tenth of it.
        pub store_mib: u64 = 256, Whole(1), "mebibytes";
        /// That an engine may write into the log; ten a second is more than a person reads, and the
        /// rest is counted.
        pub log_lines_per_minute: u64 = 600, Whole(1), "lines";
        /// The length of these lines together; a disk is not filled by what an engine says.
        pub log_kib_per_minute: u64 = 256, Whole(1), "kibibytes";
    }
}
