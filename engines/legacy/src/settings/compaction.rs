//! The numbers of layer 3: when history becomes a summary, and which one.

use ctxhost_engine_kit::chunks::ChunkLimits;
use serde::{Deserialize, Serialize};

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
    /// A model is told what to do with them in the operator's words; nothing is checked.
    Custom,
    /// Each stands in the summary under another name, and no model sees the true one.
    Anonymize,
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
    /// The same as a share of the budget; the smaller of the two counts. Default 0.25: with
    /// ledger and summary about half of the budget is free afterwards, so that the prefix lives long.
    pub keep_recent_share: f64,
    /// Share of the budget that the first try stays below. Default 0.9: the host's progress law
    /// refuses a result above 0.95.
    pub target_share: f64,
    /// The same for the second try. Default 0.7: the first was too large by the provider's count.
    pub retry_target_share: f64,
    /// The same for the third try and every later one. Default 0.5.
    pub last_target_share: f64,
    /// A result above this share of the budget is no compaction: it is answered as one that cannot
    /// fit. Default 0.95: what the host's progress law asks.
    pub limit_share: f64,
    /// Share of the budget that a compaction leaves in use at least, where the session has as much;
    /// `keep_recent_tokens` and `summary_chars` together where that is less. Default 0.3: what was
    /// allowed is used for what matters, and most of the rest is free for the next turns.
    pub floor_share: f64,
    /// Less history than this is not worth a summary, in tokens. Default 500.
    pub min_fold_tokens: u64,
    /// The sections of the summary and what follows them, without its ledger, in weighted characters.
    /// Default 16,000.
    pub summary_chars: u64,
    /// The same as a share of the budget; the smaller of the two counts. Default 0.15: the ledger,
    /// which comes beside it, tells more in the same room.
    pub summary_share: f64,
    /// Newest turns of the folded history that stay in the summary word for word; at most 12.
    /// Default 3.
    pub recent_turns: usize,
    /// One line of them, in weighted characters. Default 600.
    pub recent_line_chars: u64,
    /// One line of a tool's result among them, in weighted characters. Default 200: what came out
    /// stands at its head, and the whole is in the session.
    pub recent_result_chars: u64,
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
    /// Whether a history that is told in one piece is told behind the live conversation, where the
    /// summariser is the session's own model: its provider has that in its cache. Default false: the
    /// model then reads the conversation as it stands, secrets of results included.
    pub reuse_live_prefix: bool,
    /// Share of the reserve that a summary may use as output. Default 0.8.
    pub output_share: f64,
    /// Tries of one request to the summariser. Default 3.
    pub request_tries: u32,
    /// Pause after the first failed request, in milliseconds; doubles each time. Default 500.
    pub backoff_ms: u64,
    /// The longest such pause, in milliseconds. Default 5,000.
    pub backoff_limit_ms: u64,
    /// Each pause is longer by up to this share, so that sessions do not come back together. Default
    /// 0.2. The same call pauses the same each time.
    pub backoff_jitter: f64,
    /// Whether parts are summarised at the same time. Default false: a local model has one pair of
    /// hands.
    pub parallel_parts: bool,
    /// Whether a model's summary is checked before it is used. Default true.
    pub quality_guard: bool,
    /// How often a summary that failed the check is written again; at most 3. Default 1.
    pub quality_retries: u32,
    /// What becomes of exact identifiers. Default `strict`.
    pub identifier_policy: IdentifierPolicy,
    /// `custom`: what a model is told about identifiers. Default empty.
    pub identifier_instructions: String,
    /// The text of a workspace's AGENTS.md, or another file of rules; an engine reads no files, so
    /// the host puts it here where the config does not. Default empty.
    pub workspace_rules: String,
    /// The sections of it that a summary repeats, by heading; the whole text where it has none of
    /// them. Default `Session Startup` and `Red Lines`.
    pub workspace_sections: Vec<String>,
    /// So much of them stands in a summary, in weighted characters. Default 2,000.
    pub workspace_rules_chars: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        CompactionSettings {
            summariser: Summariser::Auto,
            model: String::new(),
            custom_instructions: String::new(),
            custom_instructions_chars: 800,
            keep_recent_tokens: 20_000,
            keep_recent_share: 0.25,
            target_share: 0.9,
            retry_target_share: 0.7,
            last_target_share: 0.5,
            limit_share: 0.95,
            floor_share: 0.3,
            min_fold_tokens: 500,
            summary_chars: 16_000,
            summary_share: 0.15,
            recent_turns: 3,
            recent_line_chars: 600,
            recent_result_chars: 200,
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
            reuse_live_prefix: false,
            output_share: 0.8,
            request_tries: 3,
            backoff_ms: 500,
            backoff_limit_ms: 5_000,
            backoff_jitter: 0.2,
            parallel_parts: false,
            quality_guard: true,
            quality_retries: 1,
            identifier_policy: IdentifierPolicy::Strict,
            identifier_instructions: String::new(),
            workspace_rules: String::new(),
            workspace_sections: vec!["Session Startup".into(), "Red Lines".into()],
            workspace_rules_chars: 2_000,
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
