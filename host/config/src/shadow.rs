//! `[shadow]`: limits of shadow engines.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[shadow]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ShadowSettings {
        /// Whether shadow engines may call the model for summaries; false, because their result is not used.
        pub complete: bool = false, Flag;
        /// Size of the shadow log before it is rotated, with one old file kept; about 5,000
        /// requests.
        pub log_bytes: u64 = 4 * 1024 * 1024, Whole(65_536), "bytes";
    }
}
