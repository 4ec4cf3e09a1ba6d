//! `[models]` and `[model]`: configured windows of models.

use serde::{Deserialize, Serialize};

use super::windows::MAX_WINDOW_TOKENS;

ctxhost_engine_api::settings! {
    /// `[models."provider/model"]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ModelSettings required {
        /// Window of the model `provider/name`; overrides everything but --window and a smaller limit from
        /// a refusal.
        pub window_tokens: u64, Between(1, MAX_WINDOW_TOKENS), "provider tokens";
    }
}

ctxhost_engine_api::settings! {
    /// `[model]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ModelDefaults {
        /// Window of a model without any other source; most large models have this one. Set here,
        /// it applies to every model that `[models]` does not name.
        pub default_window_tokens: u64 = 200_000, Between(1, MAX_WINDOW_TOKENS), "provider tokens";
        /// How long `chat` waits at its start for the provider to state the model's window, usually
        /// less than a second; 0 does not ask.
        pub window_query_ms: u64 = 2_000, Whole(0), "ms";
    }
}
