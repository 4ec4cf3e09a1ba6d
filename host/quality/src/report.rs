//! What was measured, as data.

use serde::Serialize;

/// All of it.
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
    /// The same without times, so that two runs are equal.
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

    /// Invariants that finished requests break, in all runs.
    pub fn violations(&self) -> u64 {
        self.runs().map(|run| run.violations).sum()
    }

    fn runs(&self) -> impl Iterator<Item = &RunTotals> {
        let evidence = self.evidence.iter().filter_map(|row| row.run.as_ref());
        evidence.chain(self.recordings.iter().map(|row| &row.run))
    }
}

/// What is the same for every sort of run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunTotals {
    /// Requests that were shaped.
    pub requests: u64,
    /// Requests over their budget by the host's own count.
    pub overruns: u64,
    /// Invariants that a finished request breaks.
    pub violations: u64,
    /// Requests that the host shaped in place of the engine.
    pub emergency_trims: u64,
    /// How much of the budget, or of a smaller history, is used, in percent.
    pub room_percent: f64,
    /// How much of each request begins the next one unchanged, in percent; `None` for single requests.
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
    /// The data set.
    pub file: String,
    /// Engine or baseline.
    pub subject: String,
    /// What a request may take, in tokens.
    pub budget_tokens: u64,
    /// How many questions.
    pub questions: u64,
    /// Mean over questions of the share of the evidence's tokens that is shown word for word, in percent.
    pub recall_percent: f64,
    /// Mean over evidence turns of being shown whole, in percent.
    pub turn_percent: f64,
    /// Questions with all of their evidence shown whole, in percent.
    pub all_percent: f64,
    /// Mean over questions of the share of conversations with evidence among the five that the context
    /// holds most of, in percent.
    pub top5_percent: f64,
    /// [`recall_percent`](Self::recall_percent) by kind of question.
    pub by_category: Vec<(String, f64)>,
    /// The run itself; `None` for a baseline.
    pub run: Option<RunTotals>,
}

/// Identifiers of one recording with one subject at one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingRow {
    /// The recording.
    pub file: String,
    /// The engine.
    pub subject: String,
    /// What a request may take, in tokens.
    pub budget_tokens: u64,
    /// Share of the identifiers in the next calls' arguments, said before, that the context shows, in percent.
    pub derivable_percent: f64,
    /// How many of those identifiers there were.
    pub derivable: u64,
    /// Mean over turns of the share of the identifiers that the turn goes on to use, said before and not in its prompt, in percent.
    pub needed_percent: f64,
    /// How many turns had any.
    pub needed_turns: u64,
    /// Changes of a file that was read before and whose content the context no longer shows, in percent.
    pub reread_percent: f64,
    /// The run itself.
    pub run: RunTotals,
}

/// Rules of one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RuleRow {
    /// The engine.
    pub subject: String,
    /// Generated sessions.
    pub sessions: u64,
    /// Compactions in each that were asked for.
    pub compactions: u64,
    /// Compactions that were applied, in all sessions.
    pub applied: u64,
    /// Sessions whose every rule that holds is shown.
    pub sessions_kept: u64,
    /// Rules that hold, in all sessions, and how many of them are shown.
    pub rules: u64,
    /// See [`rules`](Self::rules).
    pub rules_kept: u64,
    /// Rules that were replaced, and how many of them are still shown.
    pub replaced: u64,
    /// See [`replaced`](Self::replaced).
    pub stale: u64,
}
