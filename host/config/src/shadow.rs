//! What engines may do that run beside the slot's own.

use serde::{Deserialize, Serialize};

/// `[shadow]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShadowSettings {
    /// Whether they may ask the model for summaries. Default false: nobody should pay for an answer that
    /// nobody sees.
    pub complete: bool,
    /// What is written down of them before the file begins anew, in bytes; the file before it is kept.
    /// Default 4,194,304: about five thousand requests.
    pub log_bytes: u64,
}

impl Default for ShadowSettings {
    fn default() -> Self {
        ShadowSettings { complete: false, log_bytes: 4 * 1024 * 1024 }
    }
}
