//! Settings of layer 3: when and how history is summarised.

use ctxhost_engine_kit::chunks::ChunkLimits;
use serde::{Deserialize, Serialize};

/// Who writes the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummariserChoice {
    /// A model if the host has one, else the conversation's own sentences.
    #[default]
    Auto,
    /// Like `auto`, and a missing model is logged.
    Model,
    /// The conversation's own sentences.
    Extractive,
}

/// Treatment of exact identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentifierPolicy {
    /// The summary must contain each, exactly.
    #[default]
    Strict,
    /// The model follows the operator's instructions; nothing is checked.
    Custom,
    /// Each is replaced by a pseudonym, also for the model.
    Anonymize,
    /// Not checked.
    Off,
}

ctxhost_engine_api::settings! {
    /// Layer 3.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct CompactionSettings {
        /// Who writes the summary: `auto` is a model if there is one, else the conversation's own
        /// sentences (`extractive`); `model` is the same and logs a missing model.
        pub summariser: SummariserChoice = SummariserChoice::Auto, Word(&["auto", "model", "extractive"]);
        /// Name of the model; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// Focus of every summary. Untrusted text.
        pub custom_instructions: String = String::new(), AnyText;
        /// Limit of custom instructions: a focus, not a second prompt.
        pub custom_instructions_chars: usize = 800, Whole(0), "code points";
        /// Maximum size of the newest entries that stay unchanged.
        pub keep_recent_tokens: u64 = 20_000, Whole(0), "tokens";
        /// The same as a share of the budget; the smaller one counts. With ledger and summary about
        /// half of the budget is then free.
        pub keep_recent_share: f64 = 0.25, Share, "share";
        /// Share of the budget that the first attempt stays below: the host refuses a result above
        /// 0.95.
        pub target_share: f64 = 0.9, Share, "share";
        /// The same for the second attempt: the first was too large by the provider's count.
        pub retry_target_share: f64 = 0.7, Share, "share";
        /// The same for later attempts.
        pub last_target_share: f64 = 0.5, Share, "share";
        /// A result above this share of the budget is answered with `CannotFit`: the host requires
        /// progress.
        pub limit_share: f64 = 0.95, Share, "share";
        /// Minimum share of the budget in use after a compaction, if the session has as much; at
        /// most `keep_recent_tokens` and `summary_chars` together.
        pub floor_share: f64 = 0.3, Share, "share";
        /// Less history is not worth a summary.
        pub min_fold_tokens: u64 = 500, Whole(0), "tokens";
        /// Size of the sections and the appendix, without the ledger.
        pub summary_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// The same as a share of the budget; the smaller one counts. The ledger holds more in the
        /// same room.
        pub summary_share: f64 = 0.15, Share, "share";
        /// Newest turns of the replaced history that the summary repeats word for word; at most 12.
        pub recent_turns: usize = 3, Whole(0), "turns";
        /// Length of one line of them.
        pub recent_line_chars: u64 = 600, Whole(0), "weighted characters";
        /// Length of one result line among them: its head has the outcome.
        pub recent_result_chars: u64 = 200, Whole(0), "weighted characters";
        /// Size of all of them.
        pub recent_turns_chars: u64 = 8_000, Whole(0), "weighted characters";
        /// Number of tool failures that the summary lists.
        pub tool_failures: usize = 8, Whole(0), "failures";
        /// Length of one failure.
        pub tool_failure_chars: u64 = 240, Whole(0), "weighted characters";
        /// Size of each list of files.
        pub file_list_chars: usize = 900, Whole(0), "characters";
        /// Share of the window for one request to the summariser.
        pub chunk_base_ratio: f64 = 0.4, Share, "share";
        /// The same if messages are large.
        pub chunk_min_ratio: f64 = 0.15, Share, "share";
        /// Factor applied to estimates before they are compared with the window.
        pub chunk_margin: f64 = 1.2, AtLeast(1.0), "factor";
        /// Reserved in each request for instructions and the previous summary.
        pub chunk_overhead_tokens: u64 = 4_096, Whole(0), "tokens";
        /// Number of parts that are summarised separately and then merged.
        pub parts: usize = 2, Whole(0), "parts";
        /// A history of fewer messages is not divided into parts.
        pub min_messages_to_split: u64 = 4, Whole(0), "messages";
        /// A message above this share of the window is left out of the second attempt.
        pub oversized_share: f64 = 0.5, Share, "share";
        /// Share of the window that a model summarises in the last attempt; older history is
        /// summarised extractively first.
        pub history_share: f64 = 0.5, Share, "share";
        /// Length of one tool result in a prompt.
        pub prompt_result_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// Whether a history that fits one request is summarised by continuing the live
        /// conversation, which the provider has cached, if the summariser is the session's model.
        /// It then reads tool results with their secrets.
        pub reuse_live_prefix: bool = false, Flag;
        /// Share of the reserve that a summary may use as output.
        pub output_share: f64 = 0.8, Share, "share";
        /// Attempts of one request to the summariser.
        pub request_tries: u32 = 3, Whole(0), "tries";
        /// Pause after the first failed request; doubles each time.
        pub backoff_ms: u64 = 500, Whole(0), "ms";
        /// Maximum pause.
        pub backoff_limit_ms: u64 = 5_000, Whole(0), "ms";
        /// Each pause is longer by up to this share, the same for the same call, so that sessions
        /// do not retry together.
        pub backoff_jitter: f64 = 0.2, Number(0.0, 1.0), "share";
        /// Whether parts are summarised concurrently: a local model serves one request at a time.
        pub parallel_parts: bool = false, Flag;
        /// Whether a model's summary is checked before use.
        pub quality_guard: bool = true, Flag;
        /// Retries after a failed check; at most 3.
        pub quality_retries: u32 = 1, Whole(0), "retries";
        /// Exact identifiers: `strict` requires each in the summary; `custom` gives the model
        /// `identifier_instructions`; `anonymize` replaces them by pseudonyms, also for the model;
        /// `off` checks nothing.
        pub identifier_policy: IdentifierPolicy = IdentifierPolicy::Strict,
            Word(&["strict", "custom", "anonymize", "off"]);
        /// `custom`: the model's instructions for identifiers.
        pub identifier_instructions: String = String::new(), AnyText;
        /// Text of the workspace's rules. Engines read no files: if it is unset, `ctxhost compact`
        /// and `replay` pass the AGENTS.md nearest to the session's working folder, up to the root
        /// of its repository, and report it. Empty for none.
        pub workspace_rules: String = String::new(), AnyText;
        /// Headings of the sections that a summary repeats; the whole text if none matches.
        pub workspace_sections: Vec<String> = vec!["Session Startup".into(), "Red Lines".into()],
            List;
        /// Size of these rules in a summary.
        pub workspace_rules_chars: u64 = 2_000, Whole(0), "weighted characters";
    }
}

/// Maximum of `recent_turns`.
const MAX_RECENT_TURNS: usize = 12;
/// Maximum of `quality_retries`.
const MAX_QUALITY_RETRIES: u32 = 3;

impl CompactionSettings {
    /// The limits of chunking.
    pub(crate) fn chunk_limits(&self) -> ChunkLimits {
        ChunkLimits {
            base_ratio: self.chunk_base_ratio,
            min_ratio: self.chunk_min_ratio,
            margin: self.chunk_margin,
            overhead_tokens: self.chunk_overhead_tokens,
            oversized_share: self.oversized_share,
        }
    }

    /// Maximum number of summaries written.
    pub(crate) fn quality_tries(&self) -> u32 {
        if self.quality_guard { 1 + self.quality_retries.min(MAX_QUALITY_RETRIES) } else { 1 }
    }

    /// Number of turns repeated word for word.
    pub(crate) fn preserved_turns(&self) -> usize {
        self.recent_turns.min(MAX_RECENT_TURNS)
    }
}
