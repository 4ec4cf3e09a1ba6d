//! The report on shadow engines, beside the engines that served.

use std::collections::BTreeMap;

use serde::Serialize;

use super::log::{EngineOutcome, ShadowRecord};
use ctxhost_retention::Shares;

/// Totals of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadowReport {
    pub requests: u64,
    pub skipped: u64,
    /// The time of the first request, in milliseconds since 1970; 0 without requests.
    pub from_ms: i64,
    /// The time of the last request.
    pub to_ms: i64,
    /// Serving engines first, then shadows, each by name.
    pub engines: Vec<ShadowRow>,
}

/// The totals of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShadowRow {
    /// Its name; a chain as `mask+legacy`.
    pub engine: String,
    /// Whether it was active, and not a shadow.
    pub active: bool,
    /// Requests that it shaped or would have shaped.
    pub requests: u64,
    /// Requests at which it compacted or would have compacted.
    pub compacts: u64,
    /// What it retained, by category, over all requests.
    pub retention: Shares,
    /// The mean retention over all requests, from 0 to 1.
    pub retention_mean: f64,
    /// The total size of the requests, in estimated tokens.
    pub tokens: u64,
    /// That size relative to the serving engine's for the same requests.
    pub tokens_ratio: f64,
    /// The 99th percentile of the time inside the engine, in microseconds.
    pub p99_us: u64,
    /// Rejected plans, and violations of finished requests.
    pub violations: u64,
    pub repairs: u64,
    /// Requests without a plan.
    pub failed: u64,
    /// The newest error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl ShadowReport {
    /// Sums up lines of the log, oldest first.
    pub fn from_records(lines: &[ShadowRecord]) -> ShadowReport {
        let mut engines: BTreeMap<(bool, String), ShadowTally> = BTreeMap::new();
        for line in lines {
            let active = &line.active;
            engines.entry((false, active.engine.clone())).or_default().count(active, active);
            for shadow in &line.shadows {
                engines.entry((true, shadow.engine.clone())).or_default().count(shadow, active);
            }
        }
        let row = |((is_shadow, engine), tally): ((bool, String), ShadowTally)| ShadowRow {
            engine,
            active: !is_shadow,
            ..tally.row()
        };
        ShadowReport {
            requests: lines.len() as u64,
            skipped: lines.iter().map(|line| line.skipped).sum(),
            from_ms: lines.first().map_or(0, |line| line.at_ms),
            to_ms: lines.last().map_or(0, |line| line.at_ms),
            engines: engines.into_iter().map(row).collect(),
        }
    }
}

/// The running totals of one engine.
#[derive(Default)]
struct ShadowTally {
    row: ShadowRow,
    retention: f64,
    active_tokens: u64,
    times_us: Vec<u64>,
}

impl ShadowTally {
    fn count(&mut self, outcome: &EngineOutcome, active: &EngineOutcome) {
        let row = &mut self.row;
        row.violations += outcome.violations;
        // Without a plan there are no sizes to compare with the active engine's.
        if let Some(error) = &outcome.error {
            row.failed += 1;
            row.failure = Some(error.clone());
            return;
        }
        row.requests += 1;
        row.compacts += u64::from(outcome.compacts);
        row.retention.add(&outcome.retention);
        row.tokens += outcome.tokens;
        row.repairs += outcome.repairs;
        self.retention += outcome.retention.mean();
        self.active_tokens += active.tokens;
        self.times_us.push(outcome.took_us);
    }

    fn row(mut self) -> ShadowRow {
        self.times_us.sort_unstable();
        // Not zero: an engine that failed at every request still gets a row.
        let requests = self.row.requests.max(1) as f64;
        // Of fewer than a hundred times this is the longest.
        let at = (self.times_us.len() * 99 / 100).min(self.times_us.len().saturating_sub(1));
        ShadowRow {
            retention_mean: self.retention / requests,
            tokens_ratio: self.row.tokens as f64 / self.active_tokens.max(1) as f64,
            p99_us: self.times_us.get(at).copied().unwrap_or_default(),
            ..self.row
        }
    }
}
