//! The numbers of layer 3: when history becomes a summary, and which one.

use ctxhost_engine_kit::chunks::ChunkLimits;
use serde::{Deserialize, Serialize};

/// Who writes the summary of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummariserChoice {
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
    /// A model is told what to do with them in the operator's words; nothing is checked.
    Custom,
    /// Each stands in the summary under another name, and no model sees the true one.
    Anonymize,
    /// They are not checked.
    Off,
}

ctxhost_engine_api::settings! {
    /// Layer 3.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct CompactionSettings {
        /// Who writes the summary: `auto` is a model where there is one, else the conversation's
        /// own sentences; `model` is the same, and its absence is logged; `extractive` is always
        /// the conversation's own sentences.
        pub summariser: SummariserChoice = SummariserChoice::Auto, Word(&["auto", "model", "extractive"]);
        /// The model that writes it, by name; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// What every summary should look after. Untrusted text.
        pub custom_instructions: String = String::new(), AnyText;
        /// Custom instructions are cut here: a focus, not a second prompt.
        pub custom_instructions_chars: usize = 800, Whole(0), "code points";
        /// The newest part of the transcript that stays as it is.
        pub keep_recent_tokens: u64 = 20_000, Whole(0), "tokens";
        /// The same as a share of the budget; the smaller of the two counts. With ledger and
        /// summary about half of the budget is free afterwards, so that the prefix lives long.
        pub keep_recent_share: f64 = 0.25, Share, "share";
        /// Share of the budget that the first try stays below: the host's progress law refuses a
        /// result above 0.95.
        pub target_share: f64 = 0.9, Share, "share";
        /// The same for the second try: the first was too large by the provider's count.
        pub retry_target_share: f64 = 0.7, Share, "share";
        /// The same for the third try and every later one.
        pub last_target_share: f64 = 0.5, Share, "share";
        /// A result above this share of the budget is no compaction and is answered as one that
        /// cannot fit: what the host's progress law asks.
        pub limit_share: f64 = 0.95, Share, "share";
        /// Share of the budget that a compaction leaves in use at least, where the session has as
        /// much; `keep_recent_tokens` and `summary_chars` together where that is less. What was
        /// allowed is used for what matters, and most of the rest is free for the next turns.
        pub floor_share: f64 = 0.3, Share, "share";
        /// Less history than this is not worth a summary.
        pub min_fold_tokens: u64 = 500, Whole(0), "tokens";
        /// The sections of the summary and what follows them, without its ledger.
        pub summary_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// The same as a share of the budget; the smaller of the two counts. The ledger, which
        /// comes beside it, tells more in the same room.
        pub summary_share: f64 = 0.15, Share, "share";
        /// Newest turns of the folded history that stay in the summary word for word; at most 12.
        pub recent_turns: usize = 3, Whole(0), "turns";
        /// One line of them.
        pub recent_line_chars: u64 = 600, Whole(0), "weighted characters";
        /// One line of a tool's result among them: what came out stands at its head, and the whole
        /// is in the session.
        pub recent_result_chars: u64 = 200, Whole(0), "weighted characters";
        /// All of them.
        pub recent_turns_chars: u64 = 8_000, Whole(0), "weighted characters";
        /// Failures of tools that the summary lists.
        pub tool_failures: usize = 8, Whole(0), "failures";
        /// One of them.
        pub tool_failure_chars: u64 = 240, Whole(0), "weighted characters";
        /// Each list of files in the summary.
        pub file_list_chars: usize = 900, Whole(0), "characters";
        /// Share of the window for one request to the summariser.
        pub chunk_base_ratio: f64 = 0.4, Share, "share";
        /// The same where messages are large.
        pub chunk_min_ratio: f64 = 0.15, Share, "share";
        /// Estimates are multiplied by it before they are compared with the window.
        pub chunk_margin: f64 = 1.2, AtLeast(1.0), "factor";
        /// Kept free in each request for instructions and the previous summary.
        pub chunk_overhead_tokens: u64 = 4_096, Whole(0), "tokens";
        /// Parts that are summarised one by one and then merged.
        pub parts: usize = 2, Whole(0), "parts";
        /// A history of fewer messages is never divided into parts.
        pub min_messages_to_split: u64 = 4, Whole(0), "messages";
        /// A message over this share of the window is left out of a second try.
        pub oversized_share: f64 = 0.5, Share, "share";
        /// Share of the window that a model summarises in the last try; what is older is summarised
        /// without a model first.
        pub history_share: f64 = 0.5, Share, "share";
        /// One tool result in a prompt of the summariser.
        pub prompt_result_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// Whether a history that is told in one piece is told behind the live conversation, where
        /// the summariser is the session's own model: its provider has that in its cache. The model
        /// then reads the conversation as it stands, secrets of results included.
        pub reuse_live_prefix: bool = false, Flag;
        /// Share of the reserve that a summary may use as output.
        pub output_share: f64 = 0.8, Share, "share";
        /// Tries of one request to the summariser.
        pub request_tries: u32 = 3, Whole(0), "tries";
        /// Pause after the first failed request; doubles each time.
        pub backoff_ms: u64 = 500, Whole(0), "ms";
        /// The longest such pause.
        pub backoff_limit_ms: u64 = 5_000, Whole(0), "ms";
        /// Each pause is longer by up to this share, so that sessions do not come back together.
        /// The same call pauses the same each time.
        pub backoff_jitter: f64 = 0.2, Number(0.0, 1.0), "share";
        /// Whether parts are summarised at the same time: a local model has one pair of hands.
        pub parallel_parts: bool = false, Flag;
        /// Whether a model's summary is checked before it is used.
        pub quality_guard: bool = true, Flag;
        /// How often a summary that failed the check is written again; at most 3.
        pub quality_retries: u32 = 1, Whole(0), "retries";
        /// What becomes of exact identifiers: `strict` wants each in the summary, letter for
        /// letter; `custom` tells a model what to do with them in the words of
        /// `identifier_instructions`; `anonymize` gives each another name, and no model sees the
        /// true one; `off` checks nothing.
        pub identifier_policy: IdentifierPolicy = IdentifierPolicy::Strict,
            Word(&["strict", "custom", "anonymize", "off"]);
        /// `custom`: what a model is told about identifiers.
        pub identifier_instructions: String = String::new(), AnyText;
        /// The text of a workspace's AGENTS.md, or another file of rules; an engine reads no files,
        /// so the host puts it here where the config does not: `ctxhost compact` and `replay` take
        /// the AGENTS.md nearest to the session's working folder, up to the root of its repository,
        /// and say so. With an empty text none is told.
        pub workspace_rules: String = String::new(), AnyText;
        /// The sections of it that a summary repeats, by heading; the whole text where it has none
        /// of them.
        pub workspace_sections: Vec<String> = vec!["Session Startup".into(), "Red Lines".into()],
            List;
        /// So much of them stands in a summary.
        pub workspace_rules_chars: u64 = 2_000, Whole(0), "weighted characters";
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
