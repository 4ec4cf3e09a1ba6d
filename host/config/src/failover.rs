//! How long models rest that gave no answer.

use serde::{Deserialize, Serialize};

/// How long models rest, and how often one is asked again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FailoverSettings {
    /// Rest after a rate limit, in milliseconds. Default 60,000: limits count by the minute. A
    /// longer wait that the provider asks for goes before.
    pub throttled_rest_ms: u64,
    /// Rest after an overload, a failure of the provider, a timeout or a failed connection, in
    /// milliseconds. Default 30,000: the wire has waited and asked again before that already.
    pub troubled_rest_ms: u64,
    /// Rest after what only a person can change (key, bill, model, window, certificate), in
    /// milliseconds. Default 600,000 (ten minutes): they may be doing so at this moment.
    pub refused_rest_ms: u64,
    /// How often the same model is asked again where another try may end differently: an empty
    /// answer, a broken stream, or a history that was repaired. Default 1: what fails twice in the
    /// same way fails a third time.
    pub same_model_retries: u32,
}

impl Default for FailoverSettings {
    fn default() -> Self {
        FailoverSettings {
            throttled_rest_ms: 60_000,
            troubled_rest_ms: 30_000,
            refused_rest_ms: 600_000,
            same_model_retries: 1,
        }
    }
}
