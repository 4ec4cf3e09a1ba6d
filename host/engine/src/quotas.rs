//! Quotas of an engine on the host: stored bytes, log lines, calls of models.

mod log;
mod store;

pub(super) use log::{LogDecision, LogQuota};
pub(super) use store::StoreQuota;

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[plugins.quotas]`: what each engine may store, log and ask of models, wherever its code runs.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Quotas {
        /// Size of an engine's store: 4 KiB for each value beside its bytes, and for an hour its
        /// blobs, which are deleted with their sessions. The index of a long session takes a tenth.
        pub store_mib: u64 = 256, Whole(1), "mebibytes";
        /// Log lines of an engine; ten a second is more than a person reads, and the rest is
        /// counted.
        pub log_lines_per_minute: u64 = 600, Whole(1), "lines";
        /// The size of these lines together, so that a log does not fill the disk.
        pub log_kib_per_minute: u64 = 256, Whole(1), "kibibytes";
        /// Completions, embeddings and delegated compactions within one call of an engine; summaries
        /// of three million tokens in parts for a window of 32,000.
        pub model_calls: u64 = 256, Whole(0), "calls";
    }
}
