//! How long models rest that gave no answer.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// How long models rest, and how often one is asked again.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct FailoverSettings {
        /// A model that said too much was asked of it; limits count by the minute, and a longer
        /// wait that it asks for goes before.
        pub throttled_rest_ms: u64 = 60_000, Whole(0), "ms";
        /// One that was overloaded, failed, or did not answer; the request has been repeated before
        /// that already.
        pub troubled_rest_ms: u64 = 30_000, Whole(0), "ms";
        /// One that only a person can help (key, bill, name, window); they may be doing so at this
        /// moment.
        pub refused_rest_ms: u64 = 600_000, Whole(0), "ms";
        /// Of an empty or broken answer by the same model; what fails twice in the same way fails a
        /// third time.
        pub same_model_retries: u32 = 1, Whole(0), "retries";
    }
}
