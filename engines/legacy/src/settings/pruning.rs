//! The numbers of layer 4: when old tool output goes, and how much of it.

use serde::{Deserialize, Serialize};

use super::duration::ConfigDuration;

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

ctxhost_engine_api::settings! {
    /// Layer 4.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PruningSettings {
        /// Whether it runs: it pays only with a provider that caches prompts.
        pub mode: PruningMode = PruningMode::Off, Word(&["off", "cache-ttl"]);
        /// How long a provider keeps a prompt cached: `"5m"`, `"1h30m"`, or a number of minutes.
        pub ttl: ConfigDuration = ConfigDuration::from_minutes(5), Duration;
        /// The newest assistant messages whose results are never touched.
        pub keep_last_assistants: usize = 3, Whole(0), "messages";
        /// Share of the window at which long results are trimmed.
        pub soft_share: f64 = 0.3, Share, "share";
        /// Share of the window at which results are cleared.
        pub hard_share: f64 = 0.5, Share, "share";
        /// A longer result is trimmed.
        pub soft_over_chars: u64 = 4_000, Whole(0), "weighted characters";
        /// What a trimmed result keeps of its head.
        pub soft_head_chars: u64 = 1_500, Whole(0), "weighted characters";
        /// What a trimmed result keeps of its tail.
        pub soft_tail_chars: u64 = 1_500, Whole(0), "weighted characters";
        /// Whether results are cleared at all.
        pub hard_clear: bool = true, Flag;
        /// Nothing is cleared where all prunable results together are smaller: less is not worth a
        /// new cached prefix.
        pub hard_min_chars: u64 = 50_000, Whole(0), "weighted characters";
        /// What stands in place of a cleared result.
        pub placeholder: String = "[Old tool result content cleared]".into(), AnyText;
        /// Tools whose results may be pruned, as globs without regard to case; empty for all.
        pub allow: Vec<String> = Vec::new(), List;
        /// Tools whose results are never pruned, as globs; wins over `allow`.
        pub deny: Vec<String> = Vec::new(), List;
        /// Whether images of old turns are replaced by a line, whatever the mode: each costs 2,000
        /// tokens, and the model has long said what it saw.
        pub old_images: bool = true, Flag;
        /// The newest completed turns whose images stay.
        pub keep_image_turns: usize = 3, Whole(0), "turns";
        /// Whether long texts inside the arguments of old calls are cut when results are trimmed: a
        /// model that sees its own call cut may believe that it wrote the file so.
        pub old_arguments: bool = false, Flag;
        /// What such a text keeps.
        pub argument_chars: u64 = 400, Whole(0), "weighted characters";
    }
}
