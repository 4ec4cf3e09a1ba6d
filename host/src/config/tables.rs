//! The tables that are nothing but settings. Why each number is what it is stands in the catalogue.

use serde::{Deserialize, Serialize};

/// `[session]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// What happens to the session file.
    pub after_compaction: AfterCompaction,
}

/// What a compaction does to the session file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCompaction {
    /// A compaction entry is appended; everything before it stays.
    #[default]
    Append,
    /// The file is written anew; the old one is archived beside it.
    Rewrite,
}

/// `[law]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LawTable {
    /// Share of the target by which a compaction must fall below it.
    pub progress_margin: f64,
    /// Failures in a row that open the breaker.
    pub breaker_failures: u32,
    /// How long an open breaker stays open.
    pub breaker_cooldown_ms: u64,
    /// Compactions of one session within one hour.
    pub compactions_per_hour: u32,
    /// Share of the budget that text of an engine's own may take.
    pub inserted_text_max_share: f64,
}

impl Default for LawTable {
    fn default() -> Self {
        LawTable {
            progress_margin: 0.05,
            breaker_failures: 3,
            breaker_cooldown_ms: 600_000,
            compactions_per_hour: 20,
            inserted_text_max_share: 0.5,
        }
    }
}

/// `[timeouts]`: how long an engine may take for each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutSettings {
    /// `create`.
    pub create_ms: u64,
    /// `bootstrap`.
    pub bootstrap_ms: u64,
    /// `ingest` and `ingest_batch`.
    pub ingest_ms: u64,
    /// `assemble`.
    pub assemble_ms: u64,
    /// `compact`, counted anew after each sign of progress.
    pub compact_ms: u64,
    /// `compact`, whatever progress it shows.
    pub compact_cap_ms: u64,
    /// `after_turn` and `commit_turn`, in the background.
    pub after_turn_ms: u64,
    /// `maintain`, in the background.
    pub maintain_ms: u64,
    /// Every hook about sub-agents.
    pub subagent_ms: u64,
    /// `dispose`.
    pub dispose_ms: u64,
}

impl Default for TimeoutSettings {
    fn default() -> Self {
        TimeoutSettings {
            create_ms: 5_000,
            bootstrap_ms: 10_000,
            ingest_ms: 2_000,
            assemble_ms: 5_000,
            compact_ms: 300_000,
            compact_cap_ms: 900_000,
            after_turn_ms: 60_000,
            maintain_ms: 60_000,
            subagent_ms: 2_000,
            dispose_ms: 2_000,
        }
    }
}

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
    /// The window of a model that nobody knows, in provider tokens.
    pub default_window_tokens: u64,
}

impl Default for ModelDefaults {
    fn default() -> Self {
        ModelDefaults { default_window_tokens: 200_000 }
    }
}

/// `[summariser]`: an OpenAI-compatible model for `Host::complete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummariserSettings {
    /// Where its API begins, up to and including `/v1`.
    pub base_url: String,
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
