//! The numbers of layer 4: when old tool output goes, and how much of it.

use serde::{Deserialize, Serialize};

use super::lapse::Lapse;

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
    /// How long a provider keeps a prompt cached: `"5m"`, `"1h30m"`, or a number of minutes. Default
    /// 5 minutes.
    pub ttl: Lapse,
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
    /// Whether images of old turns are replaced by a line, whatever the mode. Default true: each
    /// costs 2,000 tokens, and the model has long said what it saw.
    pub old_images: bool,
    /// The newest completed turns whose images stay. Default 3.
    pub keep_image_turns: usize,
    /// Whether long texts inside the arguments of old calls are cut when results are trimmed. Default
    /// false: a model that sees its own call cut may believe that it wrote the file so.
    pub old_arguments: bool,
    /// What such a text keeps, in weighted characters. Default 400.
    pub argument_chars: u64,
}

impl Default for PruningSettings {
    fn default() -> Self {
        PruningSettings {
            mode: PruningMode::Off,
            ttl: Lapse::from_minutes(5),
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
            old_images: true,
            keep_image_turns: 3,
            old_arguments: false,
            argument_chars: 400,
        }
    }
}
