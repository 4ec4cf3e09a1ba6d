//! What engines in the shadow would have made of requests, beside what the slot's own made of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::log::{EngineOutcome, ShadowRecord};
use ctxhost_retention::Shares;

/// The ledger, summed up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadowReport {
    /// Requests in it.
    pub requests: u64,
    /// Requests that nobody in the shadow looked at.
    pub skipped: u64,
    /// When the first of them was shaped, in milliseconds since 1970; 0 without any.
    pub from_ms: i64,
    /// When the last of them was.
    pub to_ms: i64,
    /// The engines: those that served first, then those in the shadow, each by name.
    pub engines: Vec<ShadowRow>,
}

/// One engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShadowRow {
    /// Its name; several in a row as one word.
    pub engine: String,
    /// Whether it served, rather than looked on.
    pub serves: bool,
    /// Requests that it shaped, or would have.
    pub requests: u64,
    /// Requests at which it compacted, or would have.
    pub compacts: u64,
    /// How much of what was said was still said, by category, over all requests.
    pub survival: Shares,
    /// The mean over all requests, from 0 to 1.
    pub survival_mean: f64,
    /// What the requests cost together, in tokens without margin.
    pub tokens: u64,
    /// That, for each token of the engine that served the same requests.
    pub tokens_ratio: f64,
    /// Time inside it that 99 of 100 requests stayed below, in microseconds.
    pub p99_us: u64,
    /// Plans that the law refused, and laws that finished requests broke.
    pub illegal: u64,
    /// Plans that the law mended.
    pub repairs: u64,
    /// Requests that it made nothing of.
    pub failed: u64,
    /// Why, the newest time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl ShadowReport {
    /// Of lines of the ledger, oldest first.
    pub fn from_records(lines: &[ShadowRecord]) -> ShadowReport {
        let mut engines: BTreeMap<(bool, String), ShadowTally> = BTreeMap::new();
        for line in lines {
            let active = &line.active;
            engines.entry((false, active.engine.clone())).or_default().count(active, active);
            for seen in &line.shadows {
                engines.entry((true, seen.engine.clone())).or_default().count(seen, active);
            }
        }
        let row = |((looks_on, engine), tally): ((bool, String), ShadowTally)| ShadowRow {
            engine,
            serves: !looks_on,
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

/// The sums of one engine.
#[derive(Default)]
struct ShadowTally {
    row: ShadowRow,
    survival: f64,
    active_tokens: u64,
    times_us: Vec<u64>,
}

impl ShadowTally {
    fn count(&mut self, seen: &EngineOutcome, active: &EngineOutcome) {
        let row = &mut self.row;
        row.illegal += seen.illegal;
        if let Some(error) = &seen.error {
            row.failed += 1;
            row.failure = Some(error.clone());
            return;
        }
        row.requests += 1;
        row.compacts += u64::from(seen.compacts);
        row.survival.add(&seen.survival);
        row.tokens += seen.tokens;
        row.repairs += seen.repairs;
        self.survival += seen.survival.mean();
        self.active_tokens += active.tokens;
        self.times_us.push(seen.took_us);
    }

    fn row(mut self) -> ShadowRow {
        self.times_us.sort_unstable();
        let requests = self.row.requests.max(1) as f64;
        let at = (self.times_us.len() * 99 / 100).min(self.times_us.len().saturating_sub(1));
        ShadowRow {
            survival_mean: self.survival / requests,
            tokens_ratio: self.row.tokens as f64 / self.active_tokens.max(1) as f64,
            p99_us: self.times_us.get(at).copied().unwrap_or_default(),
            ..self.row
        }
    }
}
