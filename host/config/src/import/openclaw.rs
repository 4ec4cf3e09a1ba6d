//! The mapping of `openclaw.json`, including retired keys.

use super::value_shape::MappedValue::{Flag, Text};
use super::value_shape::ValueShape;
use super::{MappingRow, MappingTable, none, to};

pub(super) const TABLE: MappingTable = MappingTable {
    rows: ROWS,
    scopes: &[
        "agents.defaults.compaction",
        "agents.defaults.contextPruning",
        "agents.defaults.contextLimits",
        "plugins.slots",
    ],
};

const ANY: ValueShape = ValueShape::Whole(0, u64::MAX);
const SOME: ValueShape = ValueShape::Whole(1, u64::MAX);

const FOREIGN_PLUGIN: &str = "a plugin of OpenClaw, which cannot run here";

/// If two keys map to one setting, the later row wins: a specific switch over a mode, a cap over a
/// window.
#[rustfmt::skip]
const ROWS: &[MappingRow] = &[
    none("agents.defaults.compaction.enabled", "compaction runs only when a request would not fit, and cannot be disabled"),
    to("agents.defaults.compaction.mode", "plugins.entries.legacy.config.compaction.quality_guard", ValueShape::Word(&[("default", Flag(false)), ("safeguard", Flag(true))])),
    none("agents.defaults.compaction.provider", "the active engine compacts: plugins.slots.context_engine"),
    to("agents.defaults.compaction.model", "plugins.entries.legacy.config.compaction.model", ValueShape::Text),
    none("agents.defaults.compaction.thinkingLevel", "the model's own setting controls reasoning in summaries"),
    to("agents.defaults.compaction.keepRecentTokens", "plugins.entries.legacy.config.compaction.keep_recent_tokens", SOME),
    to("agents.defaults.compaction.identifierPolicy", "plugins.entries.legacy.config.compaction.identifier_policy", ValueShape::Word(&[("strict", Text("strict")), ("off", Text("off")), ("custom", Text("custom"))])),
    to("agents.defaults.compaction.identifierInstructions", "plugins.entries.legacy.config.compaction.identifier_instructions", ValueShape::Text),
    to("agents.defaults.compaction.recentTurnsPreserve", "plugins.entries.legacy.config.compaction.recent_turns", ValueShape::Whole(0, 12)),
    to("agents.defaults.compaction.qualityGuard.enabled", "plugins.entries.legacy.config.compaction.quality_guard", ValueShape::Flag),
    to("agents.defaults.compaction.qualityGuard.maxRetries", "plugins.entries.legacy.config.compaction.quality_retries", ValueShape::Clamped(0, 3)),
    none("agents.defaults.compaction.midTurnPrecheck.enabled", "every request is checked before it is sent, also within a turn"),
    none("agents.defaults.compaction.postIndexSync", "ctxhost keeps no memory index"),
    to("agents.defaults.compaction.postCompactionSections", "plugins.entries.legacy.config.compaction.workspace_sections", ValueShape::List),
    to("agents.defaults.compaction.timeoutSeconds", "timeouts.compact_ms", ValueShape::Seconds),
    none("agents.defaults.compaction.maxActiveTranscriptBytes", "the session file may grow; requests are limited by tokens"),
    none("agents.defaults.compaction.memoryFlush.**", "ctxhost runs no extra turn before a compaction"),
    none("agents.defaults.compaction.notifyUser", "every result reports its engine and compactions"),
    to("agents.defaults.compaction.reserveTokens", "budget.reserve_tokens", ValueShape::Largest(1, u64::MAX)),
    to("agents.defaults.compaction.reserveTokensFloor", "budget.reserve_tokens", ValueShape::Largest(1, u64::MAX)),
    to("agents.defaults.compaction.maxHistoryShare", "plugins.entries.legacy.config.compaction.history_share", ValueShape::Share),
    to("agents.defaults.compaction.customInstructions", "plugins.entries.legacy.config.compaction.custom_instructions", ValueShape::Text),

    to("agents.defaults.contextPruning.mode", "plugins.entries.legacy.config.pruning.mode", ValueShape::Word(&[("off", Text("off")), ("cache-ttl", Text("cache-ttl"))])),
    to("agents.defaults.contextPruning.ttl", "plugins.entries.legacy.config.pruning.ttl", ValueShape::Duration),
    to("agents.defaults.contextPruning.tools.allow", "plugins.entries.legacy.config.pruning.allow", ValueShape::List),
    to("agents.defaults.contextPruning.tools.deny", "plugins.entries.legacy.config.pruning.deny", ValueShape::List),
    to("agents.defaults.contextPruning.hardClear.enabled", "plugins.entries.legacy.config.pruning.hard_clear", ValueShape::Flag),
    to("agents.defaults.contextPruning.hardClear.placeholder", "plugins.entries.legacy.config.pruning.placeholder", ValueShape::Text),
    to("agents.defaults.contextPruning.keepLastAssistants", "plugins.entries.legacy.config.pruning.keep_last_assistants", ANY),
    to("agents.defaults.contextPruning.softTrimRatio", "plugins.entries.legacy.config.pruning.soft_share", ValueShape::Share),
    to("agents.defaults.contextPruning.hardClearRatio", "plugins.entries.legacy.config.pruning.hard_share", ValueShape::Share),
    to("agents.defaults.contextPruning.minPrunableToolChars", "plugins.entries.legacy.config.pruning.hard_min_chars", ANY),
    to("agents.defaults.contextPruning.softTrim.maxChars", "plugins.entries.legacy.config.pruning.soft_over_chars", SOME),
    to("agents.defaults.contextPruning.softTrim.headChars", "plugins.entries.legacy.config.pruning.soft_head_chars", ANY),
    to("agents.defaults.contextPruning.softTrim.tailChars", "plugins.entries.legacy.config.pruning.soft_tail_chars", ANY),

    to("agents.defaults.contextLimits.postCompactionMaxChars", "plugins.entries.legacy.config.compaction.workspace_rules_chars", ANY),
    to("agents.defaults.contextTokens", "model.default_window_tokens", SOME),
    to("models.providers.*.models.*.contextWindow", "models.*/*.window_tokens", SOME),
    to("models.providers.*.models.*.contextTokens", "models.*/*.window_tokens", SOME),

    to("plugins.enabled", "plugins.enabled", ValueShape::Flag),
    to("plugins.slots.contextEngine", "plugins.slots.context_engine", ValueShape::Engine),
    to("plugins.slots.memory", "plugins.slots.memory", ValueShape::NoMemory),
    none("plugins.allow", FOREIGN_PLUGIN),
    none("plugins.deny", FOREIGN_PLUGIN),
    none("plugins.entries.*.**", FOREIGN_PLUGIN),
];
