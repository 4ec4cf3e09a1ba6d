//! `[failover]`: cooldowns of failed models.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[failover]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct FailoverSettings {
        /// Cooldown of a model that answered with a rate limit; limits count by the minute. A
        /// longer wait that the provider asks for counts instead.
        pub rate_limit_cooldown_ms: u64 = 60_000, Whole(0), "ms";
        /// Cooldown of a model that was overloaded, failed or did not answer, after the request was
        /// retried.
        pub error_cooldown_ms: u64 = 30_000, Whole(0), "ms";
        /// Cooldown of a model that needs a change by the user (key, billing, name, window).
        pub refused_cooldown_ms: u64 = 600_000, Whole(0), "ms";
        /// Retries of an empty or broken answer with the same model; a second such answer is rarely
        /// followed by a good one.
        pub same_model_retries: u32 = 1, Whole(0), "retries";
    }
}
