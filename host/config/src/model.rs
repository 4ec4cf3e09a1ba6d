//! Windows of models that the file names.

use serde::{Deserialize, Serialize};

use super::windows::MAX_WINDOW_TOKENS;

ctxhost_engine_api::settings! {
    /// `[models."provider/model"]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ModelSettings required {
        /// The window of the model `provider/name`; goes before everything but --window and a
        /// smaller limit that a refusal named.
        pub window_tokens: u64, Between(1, MAX_WINDOW_TOKENS), "provider tokens";
    }
}

ctxhost_engine_api::settings! {
    /// `[model]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ModelDefaults {
        /// The window of a model that nothing else tells; what most large models have. Written
        /// here, it counts for every model that `[models]` does not name.
        pub default_window_tokens: u64 = 200_000, Between(1, MAX_WINDOW_TOKENS), "provider tokens";
        /// How long `chat` waits at its start for what a provider states of its model's window; 0
        /// asks nothing. A list of models comes within a second.
        pub window_query_ms: u64 = 2_000, Whole(0), "ms";
    }
}
