//! The results of quality measurements.

use serde::Serialize;

/// The results of all measurements.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QualityReport {
    /// Evidence of labelled questions, by file, subject and budget.
    pub evidence: Vec<EvidenceRow>,
    /// Identifiers of recorded sessions, by file, subject and budget.
    pub recordings: Vec<RecordingRow>,
    /// Rules over compactions, by subject.
    pub rules: Vec<RuleRow>,
}

impl QualityReport {
    /// The report without timings, so that two runs are equal.
    #[must_use]
    pub fn without_timings(mut self) -> QualityReport {
        let evidence = self.evidence.iter_mut().filter_map(|row| row.run.as_mut());
        for run in evidence.chain(self.recordings.iter_mut().map(|row| &mut row.run)) {
            (run.p50_us, run.p99_us) = (0, 0);
        }
        self
    }

    /// Requests over their budget, in all runs.
    pub fn overruns(&self) -> u64 {
        self.runs().map(|run| run.overruns).sum()
    }

    /// Invariant violations of finished requests, in all runs.
    pub fn violations(&self) -> u64 {
        self.runs().map(|run| run.violations).sum()
    }

    fn runs(&self) -> impl Iterator<Item = &RunTotals> {
        let evidence = self.evidence.iter().filter_map(|row| row.run.as_ref());
        evidence.chain(self.recordings.iter().map(|row| &row.run))
    }
}

/// Totals that every kind of run has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunTotals {
    /// Requests that were shaped.
    pub requests: u64,
    /// Requests over their budget by the host's own count.
    pub overruns: u64,
    /// Invariant violations of finished requests.
    pub violations: u64,
    /// Requests shaped by the emergency trim.
    pub emergency_trims: u64,
    /// Used share of the budget, or of a smaller history, in percent.
    pub room_percent: f64,
    /// Share of each request that is an unchanged prefix of the next, in percent; `None` for single
    /// requests.
    pub stable_prefix_percent: Option<f64>,
    /// Time inside engines for a request, in microseconds: median and 99th percentile.
    pub p50_us: u64,
    /// See [`p50_us`](Self::p50_us).
    pub p99_us: u64,
    /// Equal for two runs that showed the model the same.
    pub digest: String,
}

/// Evidence recall of one subject at one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EvidenceRow {
    /// Data set.
    pub file: String,
    /// Engine or baseline.
    pub subject: String,
    /// Budget of a request, in tokens.
    pub budget_tokens: u64,
    /// Number of questions.
    pub questions: u64,
    /// Mean share of the evidence's tokens that is shown verbatim, in percent.
    pub recall_percent: f64,
    /// Share of evidence turns that are shown whole, in percent.
    pub turn_percent: f64,
    /// Questions with all of their evidence shown whole, in percent.
    pub all_percent: f64,
    /// Mean share of evidence conversations among the five most shown ones, in percent.
    pub top5_percent: f64,
    /// [`recall_percent`](Self::recall_percent) by category.
    pub by_category: Vec<(String, f64)>,
    /// The run; `None` for a baseline.
    pub run: Option<RunTotals>,
}

/// Identifiers of one recording with one subject at one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingRow {
    /// Recording.
    pub file: String,
    /// Engine.
    pub subject: String,
    /// Budget of a request, in tokens.
    pub budget_tokens: u64,
    /// Share of the known identifiers in the next calls' arguments that the context shows, in
    /// percent.
    pub derivable_percent: f64,
    /// Number of those identifiers.
    pub derivable: u64,
    /// Mean over turns of the share of known identifiers that the turn uses, without those in its
    /// prompt, in percent.
    pub needed_percent: f64,
    /// Number of turns with such identifiers.
    pub needed_turns: u64,
    /// Edits of a file whose earlier read is no longer shown, in percent.
    pub reread_percent: f64,
    /// The run.
    pub run: RunTotals,
}

/// Rules of one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RuleRow {
    /// Engine.
    pub subject: String,
    /// Generated sessions.
    pub sessions: u64,
    /// Requested compactions of each session.
    pub compactions: u64,
    /// Applied compactions, in all sessions.
    pub applied: u64,
    /// Sessions that show every active rule.
    pub sessions_kept: u64,
    /// Active rules in all sessions, and how many of them are shown.
    pub rules: u64,
    /// See [`rules`](Self::rules).
    pub rules_kept: u64,
    /// Replaced rules, and how many of them are still shown.
    pub replaced: u64,
    /// See [`replaced`](Self::replaced).
    pub stale: u64,
}
