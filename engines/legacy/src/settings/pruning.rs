//! Settings of layer 4: when old tool output is pruned, and how far.

use serde::{Deserialize, Serialize};

use super::duration::ConfigDuration;

/// When old tool output is pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PruningMode {
    /// Never.
    #[default]
    Off,
    /// After the provider's prompt cache has expired, when no cached prefix is lost.
    CacheTtl,
}

ctxhost_engine_api::settings! {
    /// Layer 4.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PruningSettings {
        /// When pruning runs: it only pays with a provider that caches prompts.
        pub mode: PruningMode = PruningMode::Off, Word(&["off", "cache-ttl"]);
        /// Lifetime of the provider's prompt cache: `"5m"`, `"1h30m"`, or a number of minutes.
        pub ttl: ConfigDuration = ConfigDuration::from_minutes(5), Duration;
        /// Newest assistant messages whose results are never pruned.
        pub keep_last_assistants: usize = 3, Whole(0), "messages";
        /// Share of the window from which long results are trimmed.
        pub soft_share: f64 = 0.3, Share, "share";
        /// Share of the window from which results are cleared.
        pub hard_share: f64 = 0.5, Share, "share";
        /// A longer result is trimmed.
        pub soft_over_chars: u64 = 4_000, Whole(0), "weighted characters";
        /// Head of a trimmed result.
        pub soft_head_chars: u64 = 1_500, Whole(0), "weighted characters";
        /// Tail of a trimmed result.
        pub soft_tail_chars: u64 = 1_500, Whole(0), "weighted characters";
        /// Whether results are cleared at all.
        pub hard_clear: bool = true, Flag;
        /// Nothing is cleared if all prunable results together are smaller: it would not pay for a
        /// new cached prefix.
        pub hard_min_chars: u64 = 50_000, Whole(0), "weighted characters";
        /// Replaces a cleared result.
        pub placeholder: String = "[Old tool result content cleared]".into(), AnyText;
        /// Names of paths, files and symbols behind the placeholder, which the next calls often
        /// need; 0 for none.
        pub name_chars: u64 = 160, Whole(0), "weighted characters";
        /// Tools whose results may be pruned, as case-insensitive globs; empty for all.
        pub allow: Vec<String> = Vec::new(), List;
        /// Tools whose results are never pruned, as globs; overrides `allow`.
        pub deny: Vec<String> = Vec::new(), List;
        /// Whether images of old turns are replaced by a line, in every mode, all at once when a
        /// request is over its budget: each costs 2,000 tokens, and the model has described it.
        pub old_images: bool = true, Flag;
        /// Newest completed turns whose images stay.
        pub keep_image_turns: usize = 3, Whole(0), "turns";
        /// Whether long arguments of old calls are cut when results are trimmed: a model may
        /// believe that it wrote a cut file like that.
        pub old_arguments: bool = false, Flag;
        /// Length of a cut argument text.
        pub argument_chars: u64 = 400, Whole(0), "weighted characters";
    }
}
