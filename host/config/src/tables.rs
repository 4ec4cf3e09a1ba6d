//! The tables that are nothing but settings. Why each number is what it is stands in the catalogue.

use serde::{Deserialize, Serialize};

/// `[models."provider/model"]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The whole window of this model, in provider tokens.
    pub window_tokens: u64,
}

/// `[model]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelDefaults {
    /// The window of a model that nothing else tells, in provider tokens.
    pub default_window_tokens: u64,
    /// How long `chat` waits for what a provider states of a window, in milliseconds; 0 asks nothing.
    pub window_query_ms: u64,
}

impl Default for ModelDefaults {
    fn default() -> Self {
        ModelDefaults { default_window_tokens: 200_000, window_query_ms: 2_000 }
    }
}

/// `[summariser]`: a model for `Host::complete`, of a provider or at an address of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummariserSettings {
    /// The table of `[providers]` it belongs to.
    #[serde(default)]
    pub provider: Option<String>,
    /// Where its OpenAI-compatible API begins, up to and including `/v1`; instead of `provider`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The model's name there.
    pub model: String,
    /// The environment variable that holds the key; none for servers that want none.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// How long one answer may take.
    #[serde(default = "SummariserSettings::default_timeout_ms")]
    pub timeout_ms: u64,
    /// The longest answer.
    #[serde(default = "SummariserSettings::default_max_output_tokens")]
    pub max_output_tokens: u64,
}

impl SummariserSettings {
    pub(super) const fn default_timeout_ms() -> u64 {
        60_000
    }

    pub(super) const fn default_max_output_tokens() -> u64 {
        4_096
    }
}
