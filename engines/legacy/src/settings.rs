//! Every number of the four layers: its unit, its default and the reason for it.
//!
//! The table is `[plugins.entries.legacy.config]`; a key that is not here is refused by name.

use ctxhost_engine_api::Result;
use ctxhost_engine_kit::chunks::ChunkLimits;
use ctxhost_engine_kit::settings::{parse, refuse};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Weighted characters that make one token.
pub(crate) const CHARS_PER_TOKEN: u64 = 4;

/// The settings of the engine, one table for each layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Layer 1: is the window large enough to work in.
    pub window: WindowSettings,
    /// Layer 2: how much of a tool's output the model sees.
    pub tool_results: ToolResultSettings,
    /// Layer 3: older history becomes a summary.
    pub compaction: CompactionSettings,
    /// Layer 4: old tool output is cleared once the provider's cache has gone cold.
    pub pruning: PruningSettings,
}

/// Layer 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowSettings {
    /// A window below this is refused, in tokens. Default 16,000: system prompt, tools and a reserve
    /// leave nothing to work in below it.
    pub block_tokens: u64,
    /// A window below this is worked in with a warning, in tokens. Default 32,000.
    pub warn_tokens: u64,
}

impl Default for WindowSettings {
    fn default() -> Self {
        WindowSettings { block_tokens: 16_000, warn_tokens: 32_000 }
    }
}

/// Layer 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolResultSettings {
    /// Share of the window that one result may take. Default 0.3: three large results must fit.
    pub cap_share: f64,
    /// One result in a window below `medium_window_tokens`, in weighted characters. Default 16,000.
    pub small_cap_chars: u64,
    /// One result in a window from `medium_window_tokens` on, in weighted characters. Default 32,000.
    pub medium_cap_chars: u64,
    /// One result in a window from `large_window_tokens` on, in weighted characters. Default 64,000.
    pub large_cap_chars: u64,
    /// Where the medium cap begins, in tokens. Default 100,000.
    pub medium_window_tokens: u64,
    /// Where the large cap begins, in tokens. Default 200,000.
    pub large_window_tokens: u64,
    /// So much of a text's head is kept before an important tail takes room, in weighted characters.
    /// Default 2,000.
    pub min_keep_chars: u64,
    /// A result that alone takes more than this share of the window is cleared. Default 0.5: a cut
    /// that keeps a tenth of it would only look like the output.
    pub clear_share: f64,
    /// Share of the window that all results together may take. Default 0.5: the other half is the
    /// conversation.
    pub aggregate_share: f64,
    /// All results together may always take so many times the cap of one. Default 4.
    pub aggregate_results: u64,
}

impl Default for ToolResultSettings {
    fn default() -> Self {
        ToolResultSettings {
            cap_share: 0.3,
            small_cap_chars: 16_000,
            medium_cap_chars: 32_000,
            large_cap_chars: 64_000,
            medium_window_tokens: 100_000,
            large_window_tokens: 200_000,
            min_keep_chars: 2_000,
            clear_share: 0.5,
            aggregate_share: 0.5,
            aggregate_results: 4,
        }
    }
}

/// Who writes the summary of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summariser {
    /// A model where the host has one, else the conversation's own sentences.
    #[default]
    Auto,
    /// The same as `auto`; says that a model is expected, so that its absence is logged.
    Model,
    /// The conversation's own sentences, without a model.
    Extractive,
}

/// What the quality guard asks of identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentifierPolicy {
    /// Each must stand in the summary, letter for letter.
    #[default]
    Strict,
    /// They are not checked.
    Off,
}

/// Layer 3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompactionSettings {
    /// Who writes the summary. Default `auto`.
    pub summariser: Summariser,
    /// The model that writes it, by name; empty for the host's choice. Default empty.
    pub model: String,
    /// What every summary should look after. Untrusted text. Default empty.
    pub custom_instructions: String,
    /// Custom instructions are cut here, in code points. Default 800: a focus, not a second prompt.
    pub custom_instructions_chars: usize,
    /// The newest part of the transcript that stays as it is, in tokens. Default 20,000.
    pub keep_recent_tokens: u64,
    /// The same as a share of the budget; the smaller of the two counts. Default 0.5: in a small
    /// window 20,000 tokens would be everything.
    pub keep_recent_share: f64,
    /// Share of the budget that the first try stays below. Default 0.9: the host's progress law
    /// refuses a result above 0.95.
    pub target_share: f64,
    /// The same for the second try. Default 0.7: the first was too large by the provider's count.
    pub retry_target_share: f64,
    /// The same for the third try and every later one. Default 0.5.
    pub last_target_share: f64,
    /// Less history than this is not worth a summary, in tokens. Default 500.
    pub min_fold_tokens: u64,
    /// The whole summary, in weighted characters. Default 16,000.
    pub summary_chars: u64,
    /// The same as a share of the budget; the smaller of the two counts. Default 0.25.
    pub summary_share: f64,
    /// Newest turns of the folded history that stay in the summary word for word; at most 12.
    /// Default 3.
    pub recent_turns: usize,
    /// One line of them, in weighted characters. Default 600.
    pub recent_line_chars: u64,
    /// All of them, in weighted characters. Default 8,000.
    pub recent_turns_chars: u64,
    /// Failures of tools that the summary lists. Default 8.
    pub tool_failures: usize,
    /// One of them, in weighted characters. Default 240.
    pub tool_failure_chars: u64,
    /// Each list of files in the summary, in characters. Default 900.
    pub file_list_chars: usize,
    /// Share of the window for one request to the summariser. Default 0.4.
    pub chunk_base_ratio: f64,
    /// The same where messages are large. Default 0.15.
    pub chunk_min_ratio: f64,
    /// Estimates are multiplied by it before they are compared with the window. Default 1.2.
    pub chunk_margin: f64,
    /// Kept free in each request for instructions and the previous summary, in tokens. Default 4,096.
    pub chunk_overhead_tokens: u64,
    /// Parts that are summarised one by one and then merged. Default 2.
    pub parts: usize,
    /// A history of fewer messages is never divided into parts. Default 4.
    pub min_messages_to_split: u64,
    /// A message over this share of the window is left out of a second try. Default 0.5.
    pub oversized_share: f64,
    /// Share of the window that a model summarises in the last try; what is older is summarised
    /// without a model first. Default 0.5.
    pub history_share: f64,
    /// One tool result in a prompt of the summariser, in weighted characters. Default 2,000.
    pub prompt_result_chars: u64,
    /// Share of the reserve that a summary may use as output. Default 0.8.
    pub output_share: f64,
    /// Tries of one request to the summariser. Default 3.
    pub request_tries: u32,
    /// Pause after the first failed request, in milliseconds; doubles each time. Default 500.
    pub backoff_ms: u64,
    /// The longest such pause, in milliseconds. Default 5,000.
    pub backoff_limit_ms: u64,
    /// Whether a model's summary is checked before it is used. Default true.
    pub quality_guard: bool,
    /// How often a summary that failed the check is written again; at most 3. Default 1.
    pub quality_retries: u32,
    /// What the check asks of identifiers. Default `strict`.
    pub identifier_policy: IdentifierPolicy,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        CompactionSettings {
            summariser: Summariser::Auto,
            model: String::new(),
            custom_instructions: String::new(),
            custom_instructions_chars: 800,
            keep_recent_tokens: 20_000,
            keep_recent_share: 0.5,
            target_share: 0.9,
            retry_target_share: 0.7,
            last_target_share: 0.5,
            min_fold_tokens: 500,
            summary_chars: 16_000,
            summary_share: 0.25,
            recent_turns: 3,
            recent_line_chars: 600,
            recent_turns_chars: 8_000,
            tool_failures: 8,
            tool_failure_chars: 240,
            file_list_chars: 900,
            chunk_base_ratio: 0.4,
            chunk_min_ratio: 0.15,
            chunk_margin: 1.2,
            chunk_overhead_tokens: 4_096,
            parts: 2,
            min_messages_to_split: 4,
            oversized_share: 0.5,
            history_share: 0.5,
            prompt_result_chars: 2_000,
            output_share: 0.8,
            request_tries: 3,
            backoff_ms: 500,
            backoff_limit_ms: 5_000,
            quality_guard: true,
            quality_retries: 1,
            identifier_policy: IdentifierPolicy::Strict,
        }
    }
}

/// The most turns that stay in a summary word for word.
const MAX_RECENT_TURNS: usize = 12;
/// The most tries after a summary failed its check.
const MAX_QUALITY_RETRIES: u32 = 3;

impl CompactionSettings {
    /// The numbers of chunking.
    pub(crate) fn chunk_limits(&self) -> ChunkLimits {
        ChunkLimits {
            base_ratio: self.chunk_base_ratio,
            min_ratio: self.chunk_min_ratio,
            margin: self.chunk_margin,
            overhead_tokens: self.chunk_overhead_tokens,
            oversized_share: self.oversized_share,
        }
    }

    /// How often a summary is written at most.
    pub(crate) fn quality_tries(&self) -> u32 {
        if self.quality_guard { 1 + self.quality_retries.min(MAX_QUALITY_RETRIES) } else { 1 }
    }

    /// How many turns stay word for word.
    pub(crate) fn preserved_turns(&self) -> usize {
        self.recent_turns.min(MAX_RECENT_TURNS)
    }
}

/// Whether old tool output is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PruningMode {
    /// Nothing new is cleared.
    #[default]
    Off,
    /// When the provider's prompt cache has expired, so that clearing costs no cached prefix.
    CacheTtl,
}

/// Layer 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PruningSettings {
    /// Whether it runs. Default `off`: it pays only with a provider that caches prompts.
    pub mode: PruningMode,
    /// How long a provider keeps a prompt cached, in milliseconds. Default 300,000 (5 minutes).
    pub ttl_ms: u64,
    /// The newest assistant messages whose results are never touched. Default 3.
    pub keep_last_assistants: usize,
    /// Share of the window at which long results are trimmed. Default 0.3.
    pub soft_share: f64,
    /// Share of the window at which results are cleared. Default 0.5.
    pub hard_share: f64,
    /// A longer result is trimmed, in weighted characters. Default 4,000.
    pub soft_over_chars: u64,
    /// What a trimmed result keeps of its head, in weighted characters. Default 1,500.
    pub soft_head_chars: u64,
    /// What a trimmed result keeps of its tail, in weighted characters. Default 1,500.
    pub soft_tail_chars: u64,
    /// Whether results are cleared at all. Default true.
    pub hard_clear: bool,
    /// Nothing is cleared where all prunable results together are smaller, in weighted characters.
    /// Default 50,000: less is not worth a new cached prefix.
    pub hard_min_chars: u64,
    /// What stands in place of a cleared result.
    pub placeholder: String,
    /// Tools whose results may be pruned, as globs without regard to case; empty for all.
    pub allow: Vec<String>,
    /// Tools whose results are never pruned, as globs; wins over `allow`.
    pub deny: Vec<String>,
}

impl Default for PruningSettings {
    fn default() -> Self {
        PruningSettings {
            mode: PruningMode::Off,
            ttl_ms: 300_000,
            keep_last_assistants: 3,
            soft_share: 0.3,
            hard_share: 0.5,
            soft_over_chars: 4_000,
            soft_head_chars: 1_500,
            soft_tail_chars: 1_500,
            hard_clear: true,
            hard_min_chars: 50_000,
            placeholder: "[Old tool result content cleared]".into(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads and checks the table of the engine.
    ///
    /// # Errors
    ///
    /// A config error that names the key.
    pub fn from_config(config: &Value) -> Result<Settings> {
        let settings: Settings = parse(config)?;
        settings.check_shares()?;
        if settings.window.warn_tokens < settings.window.block_tokens {
            return Err(refuse("window.warn_tokens", "must not be below window.block_tokens"));
        }
        if settings.compaction.chunk_margin < 1.0 {
            return Err(refuse("compaction.chunk_margin", "must be at least 1"));
        }
        Ok(settings)
    }

    fn check_shares(&self) -> Result<()> {
        let Settings { tool_results, compaction, pruning, .. } = self;
        let shares = [
            ("tool_results.cap_share", tool_results.cap_share),
            ("tool_results.clear_share", tool_results.clear_share),
            ("tool_results.aggregate_share", tool_results.aggregate_share),
            ("compaction.keep_recent_share", compaction.keep_recent_share),
            ("compaction.target_share", compaction.target_share),
            ("compaction.retry_target_share", compaction.retry_target_share),
            ("compaction.last_target_share", compaction.last_target_share),
            ("compaction.summary_share", compaction.summary_share),
            ("compaction.chunk_base_ratio", compaction.chunk_base_ratio),
            ("compaction.chunk_min_ratio", compaction.chunk_min_ratio),
            ("compaction.oversized_share", compaction.oversized_share),
            ("compaction.history_share", compaction.history_share),
            ("compaction.output_share", compaction.output_share),
            ("pruning.soft_share", pruning.soft_share),
            ("pruning.hard_share", pruning.hard_share),
        ];
        match shares.into_iter().find(|(_, share)| !(*share > 0.0 && *share <= 1.0)) {
            Some((key, share)) => {
                Err(refuse(key, format_args!("is {share}; a share is above 0 and at most 1")))
            }
            None => Ok(()),
        }
    }
}

/// A share of a number of tokens or characters, rounded down.
pub(crate) fn share_of(whole: u64, share: f64) -> u64 {
    (whole as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check_and_survive_json() {
        let written = serde_json::to_value(Settings::default()).unwrap();
        assert_eq!(Settings::from_config(&written).unwrap(), Settings::default());
        assert_eq!(Settings::from_config(&json!({})).unwrap(), Settings::default());
    }

    #[test]
    fn a_wrong_setting_is_named() {
        for (config, key) in [
            (json!({"compaction": {"keep_recent_share": 1.5}}), "compaction.keep_recent_share"),
            (json!({"pruning": {"mode": "sometimes"}}), "pruning.mode"),
            (json!({"window": {"warn_tokens": 1}}), "window.warn_tokens"),
            (json!({"tool_results": {"cap_shore": 0.2}}), "tool_results.cap_shore"),
        ] {
            let error = Settings::from_config(&config).unwrap_err();
            assert_eq!(error.detail["key"], key, "{}", error.message);
        }
    }

    #[test]
    fn case_44_and_59_counts_are_clamped() {
        let settings =
            CompactionSettings { quality_retries: 9, recent_turns: 40, ..Default::default() };
        assert_eq!((settings.quality_tries(), settings.preserved_turns()), (4, 12));
    }
}
