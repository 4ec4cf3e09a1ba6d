//! What a replay found, as plain data for any face to render. Figures are tokens without margin.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ctxhost_retention::Shares;

/// One session replayed through one or more engines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The session.
    pub session: ReplayedSession,
    /// The window that was replayed against.
    pub window: ReplayWindow,
    /// One run for each engine, in the order they were asked for.
    pub runs: Vec<EngineRun>,
}

/// What was replayed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedSession {
    /// File name, without folders.
    pub name: String,
    /// The format it was recognised as: `pi-v3`, `pi-v1`, `claude-code`, `codex`, `openai`, `anthropic`.
    pub format: String,
    /// Context-bearing entries.
    pub entries: u64,
    /// User messages with what followed them.
    pub turns: u64,
    /// Requests to a model: one for each assistant message.
    pub requests: u64,
    /// The model the session names; empty when it names none.
    pub model: String,
    /// Lines that could not be read; the session was opened without them.
    pub problems: Vec<UnreadableLine>,
}

/// A line that could not be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnreadableLine {
    /// Line number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

/// The window and how it became a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayWindow {
    /// The whole window, in provider tokens.
    pub window_tokens: u64,
    /// Where the number comes from: `--window`, `config`, `model`, `default`.
    pub source: String,
    /// Held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// What a request must fit into, in tokens as entries count them.
    pub budget_tokens: u64,
}

/// One engine's run over the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineRun {
    /// The engine that was asked to shape the requests.
    pub engine: ReplayedEngine,
    /// One row for each turn.
    pub turns: Vec<TurnRow>,
    /// Every compaction that was tried.
    pub compactions: Vec<CompactionRow>,
    /// Every entry that was shortened, cleared or left out, once, at its first time.
    pub dropped: Vec<DroppedRow>,
    /// The occupancy curve: one point for each request.
    pub curve: Vec<CurvePoint>,
    /// Why another engine than the configured one shaped requests, and how many it were each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fallback_reasons: BTreeMap<String, u64>,
    /// Sums.
    pub totals: ReplayTotals,
}

/// Which engine, and where it came from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayedEngine {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: String,
    /// `bundled`, or the file it was loaded from.
    pub source: String,
}

/// One turn: a user message and every request until the next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TurnRow {
    /// From 1.
    pub turn: u64,
    /// Requests in it.
    pub requests: u64,
    /// The first line of the user's message, cut at 80 characters.
    pub prompt: String,
    /// The largest request.
    pub peak_tokens: u64,
    /// The largest request as a share of the budget.
    pub peak_percent: f64,
    /// The last request.
    pub end_tokens: u64,
    /// The engines that really shaped its requests, in order of appearance.
    pub shaped_by: Vec<String>,
    /// What each layer did: layer to number of entries it touched for the first time.
    pub layers: BTreeMap<String, u64>,
    /// Compactions that were applied.
    pub compactions: u64,
    /// Requests that another engine than the configured one shaped.
    pub fallbacks: u64,
    /// Plans that broke a law and were mended.
    pub repairs: u64,
    /// Laws that the finished request breaks. Anything but 0 is a defect of ctxhost.
    pub violations: u64,
    /// Time inside the engine.
    pub engine_us: u64,
}

/// One compaction that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompactionRow {
    /// The turn it fell into, from 1.
    pub turn: u64,
    /// The request it was made for, from 1.
    pub request: u64,
    /// Why: `threshold`, `overflow`, `manual`, …
    pub trigger: String,
    /// Who made it.
    pub engine: String,
    /// Whether it was applied.
    pub applied: bool,
    /// Why not, where it was not; what the engine said of it, where it was.
    pub reason: String,
    /// Size of the live transcript before.
    pub before_tokens: u64,
    /// Size after; equal to before where it was not applied.
    pub after_tokens: u64,
    /// The size after as a share of the budget in force.
    #[serde(default)]
    pub room_used_percent: f64,
    /// Whether that is below the floor (`invariants.room_floor_share`, `invariants.room_floor_tokens`) although the
    /// session had more to give: a defect of the engine.
    #[serde(default)]
    pub is_below_floor: bool,
    /// Entries that are no longer in the live transcript word for word.
    pub folded_entries: u64,
    /// How much of what was said is still said; none where there was nothing to hold against it.
    pub survival: Option<Shares>,
    /// The text that stands for them, cut at 400 characters.
    pub summary: String,
    /// Time inside the engine.
    pub engine_us: u64,
}

/// One entry that a request no longer shows in full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DroppedRow {
    /// The turn in which it happened first.
    pub turn: u64,
    /// The entry's id in the session.
    pub id: String,
    /// Its role.
    pub role: String,
    /// The layer that did it.
    pub layer: String,
    /// What the layer said.
    pub detail: String,
    /// Its size in the session.
    pub before_tokens: u64,
    /// Its size in the request; 0 where it is gone.
    pub after_tokens: u64,
    /// The beginning of its text, cut at 80 characters.
    pub excerpt: String,
}

/// One request on the curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CurvePoint {
    /// From 1.
    pub request: u64,
    /// The turn, from 1.
    pub turn: u64,
    /// Size of the request.
    pub tokens: u64,
    /// Whether a compaction was applied just before it.
    pub compacted: bool,
}

/// Sums of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReplayTotals {
    /// Requests.
    pub requests: u64,
    /// The largest request.
    pub peak_tokens: u64,
    /// The largest request as a share of the budget.
    pub peak_percent: f64,
    /// Compactions applied.
    pub compactions: u64,
    /// Compactions rejected by the progress law or failed.
    pub rejected: u64,
    /// Compactions that left less in use than the floor although there was more to keep.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below_floor: u64,
    /// Requests that another engine shaped.
    pub fallbacks: u64,
    /// Plans that broke a law and were mended.
    pub repairs: u64,
    /// Laws that finished requests break.
    pub violations: u64,
    /// Sum of all requests.
    pub sent_tokens: u64,
    /// Share of each request's bytes that begin the next one unchanged, mean over requests.
    pub stable_prefix_percent: f64,
    /// Identifiers that an answer named again after at least 20 entries without them.
    pub identifiers_needed: u64,
    /// Those of them that stood in the request it answered.
    pub identifiers_kept: u64,
    /// The same as a share; none where nothing was needed.
    pub identifiers_kept_percent: Option<f64>,
    /// What each layer did: layer to number of entries it touched for the first time.
    pub layers: BTreeMap<String, u64>,
    /// Why the engine was put into quarantine; empty when it was not.
    pub quarantine: String,
    /// Time inside the engine, whole run.
    pub engine_us: u64,
    /// Time inside the engine for one request, middle.
    pub engine_p50_us: u64,
    /// Time inside the engine for one request, 99th of a hundred.
    pub engine_p99_us: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ReplayReport {
    /// The same report with every time at 0, so that two runs can be compared byte for byte.
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
