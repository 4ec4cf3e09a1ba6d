//! The report of a replay, as plain data. Sizes are in estimated tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ctxhost_retention::Shares;

/// A session replayed through one or more engines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayReport {
    pub session: ReplayedSession,
    /// The window of the replay.
    pub window: ReplayWindow,
    /// One run per engine, in the requested order.
    pub runs: Vec<EngineRun>,
}

/// The replayed session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedSession {
    /// The file name, without folders.
    pub name: String,
    /// The detected format: `pi-v3`, `pi-v1`, `claude-code`, `codex`, `openai`, `anthropic`.
    pub format: String,
    /// Context-bearing entries.
    pub entries: u64,
    /// User messages, each with what follows it.
    pub turns: u64,
    /// Model requests: one per assistant message.
    pub requests: u64,
    /// The session's model; empty if unknown.
    pub model: String,
    /// Unreadable lines, which were skipped.
    pub problems: Vec<UnreadableLine>,
}

/// An unreadable line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnreadableLine {
    /// The line number, from 1.
    pub line: u64,
    pub message: String,
}

/// The window and the budget derived from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayWindow {
    /// The window, in provider tokens.
    pub window_tokens: u64,
    /// The source of the number: `--window`, `config`, `model`, `default`.
    pub source: String,
    /// Reserved for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The budget of a request, in estimated tokens.
    pub budget_tokens: u64,
}

/// The run of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineRun {
    /// The configured engine.
    pub engine: ReplayedEngine,
    /// One row per turn.
    pub turns: Vec<TurnRow>,
    /// Every attempted compaction.
    pub compactions: Vec<CompactionRow>,
    /// Every entry that was shortened, cleared or omitted, at its first occurrence.
    pub dropped: Vec<DroppedRow>,
    /// The occupancy curve: one point per request.
    pub curve: Vec<CurvePoint>,
    /// The reasons why another engine shaped requests, with their counts.
    // Omitted if empty, so that reports match those of older versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fallback_reasons: BTreeMap<String, u64>,
    pub totals: ReplayTotals,
}

/// An engine and its source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedEngine {
    pub id: String,
    pub version: String,
    /// `bundled`, or its file.
    pub source: String,
}

/// One turn: a user message and the requests until the next one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TurnRow {
    /// From 1.
    pub turn: u64,
    /// Requests of the turn.
    pub requests: u64,
    /// The first line of the user's message, up to 80 characters.
    pub prompt: String,
    /// The largest request.
    pub peak_tokens: u64,
    /// The largest request as a share of the budget.
    pub peak_percent: f64,
    /// The last request.
    pub end_tokens: u64,
    /// The engines that shaped its requests, in order of appearance.
    pub shaped_by: Vec<String>,
    /// The entries that each layer changed for the first time.
    pub layers: BTreeMap<String, u64>,
    pub compactions: u64,
    /// Requests that another engine shaped.
    pub fallbacks: u64,
    pub repairs: u64,
    /// Invariant violations of finished requests. Any is a defect of ctxhost.
    pub violations: u64,
    /// The time inside the engine.
    pub engine_us: u64,
}

/// One attempted compaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompactionRow {
    /// The turn, from 1.
    pub turn: u64,
    /// The request, from 1.
    pub request: u64,
    /// The trigger: `threshold`, `overflow`, `manual`, …
    pub trigger: String,
    pub engine: String,
    /// Whether it was applied.
    pub applied: bool,
    /// The reason for a rejection, or the engine's notes on an applied compaction.
    pub reason: String,
    /// The size of the live transcript before.
    pub before_tokens: u64,
    /// The size after; unchanged if it was not applied.
    pub after_tokens: u64,
    /// The size after as a share of the budget.
    #[serde(default)]
    pub room_used_percent: f64,
    /// Whether that is below the floor of the room invariant although the session had more to keep: a defect of the
    /// engine.
    #[serde(default)]
    pub is_below_floor: bool,
    /// Entries that the live transcript does not contain verbatim any more.
    pub folded_entries: u64,
    /// What it retained of the history; `None` without anything to compare.
    // The key of reports of earlier versions.
    #[serde(alias = "survival")]
    pub retention: Option<Shares>,
    /// The summary, up to 400 characters.
    pub summary: String,
    /// The time inside the engine.
    pub engine_us: u64,
}

/// An entry that a request does not contain in full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DroppedRow {
    /// The turn of the first occurrence.
    pub turn: u64,
    /// The entry's id in the session.
    pub id: String,
    pub role: String,
    pub layer: String,
    /// The note of the layer.
    pub detail: String,
    /// Its size in the session.
    pub before_tokens: u64,
    /// Its size in the request; 0 if it is omitted.
    pub after_tokens: u64,
    /// The start of its text, up to 80 characters.
    pub excerpt: String,
}

/// A request on the occupancy curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CurvePoint {
    /// From 1.
    pub request: u64,
    /// The turn, from 1.
    pub turn: u64,
    /// The size of the request.
    pub tokens: u64,
    /// Whether a compaction was applied before it.
    pub compacted: bool,
}

/// The totals of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReplayTotals {
    pub requests: u64,
    /// The largest request.
    pub peak_tokens: u64,
    /// The largest request as a share of the budget.
    pub peak_percent: f64,
    pub compactions: u64,
    /// Compactions that failed or were rejected.
    pub rejected: u64,
    /// Compactions that left less than the floor although there was more to keep.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below_floor: u64,
    /// Requests that another engine shaped.
    pub fallbacks: u64,
    /// Those of them that another engine shaped because this one failed, not because nothing fitted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    pub repairs: u64,
    /// Invariant violations of finished requests.
    pub violations: u64,
    /// The total size of all requests.
    pub sent_tokens: u64,
    /// The mean share of a request that starts the next one unchanged.
    pub stable_prefix_percent: f64,
    /// Identifiers that an answer used again after at least 20 entries without them.
    pub identifiers_needed: u64,
    /// Those that the answered request contained.
    pub identifiers_kept: u64,
    /// The same as a share; `None` if none was needed.
    pub identifiers_kept_percent: Option<f64>,
    /// The entries that each layer changed for the first time.
    pub layers: BTreeMap<String, u64>,
    /// Why the engine was quarantined; empty if it was not.
    pub quarantine: String,
    /// The total time inside the engine.
    pub engine_us: u64,
    /// The median time inside the engine per request.
    pub engine_p50_us: u64,
    /// The 99th percentile of the time inside the engine per request.
    pub engine_p99_us: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl EngineRun {
    /// Whether the engine failed: the figures are then, at least in part, those of its fallback.
    pub fn has_failed(&self) -> bool {
        self.totals.failed > 0 || !self.totals.quarantine.is_empty()
    }
}

impl ReplayReport {
    /// Sets all times to 0, so that reports can be compared byte for byte.
    #[must_use]
    pub fn without_timings(mut self) -> ReplayReport {
        for run in &mut self.runs {
            let totals = &mut run.totals;
            (totals.engine_us, totals.engine_p50_us, totals.engine_p99_us) = (0, 0, 0);
            run.turns.iter_mut().for_each(|turn| turn.engine_us = 0);
            run.compactions.iter_mut().for_each(|row| row.engine_us = 0);
        }
        self
    }
}
