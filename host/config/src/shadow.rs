//! What engines may do that run beside the slot's own.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[shadow]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ShadowSettings {
        /// Whether engines in the shadow may ask the model for summaries; nobody should pay for an
        /// answer that nobody sees.
        pub complete: bool = false, Flag;
        /// What is written down of engines in the shadow before the file begins anew; the file
        /// before it is kept. About five thousand requests.
        pub log_bytes: u64 = 4 * 1024 * 1024, Whole(65_536), "bytes";
    }
}
