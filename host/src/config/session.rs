//! How sessions are kept.

use serde::{Deserialize, Serialize};

use crate::session::SyncPolicy;

/// `[session]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// When what is appended is made durable. Default `always`: what was acknowledged survives a power
    /// cut.
    pub sync: SyncPolicy,
}
