//! The results of quality measurements.

use ctxhost_context::ContextError;
use serde::Serialize;

use crate::QualityError;
use crate::verdict::Verdict;

/// The results of all measurements.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QualityReport {
    /// Evidence of labelled questions, by file, subject and budget.
    pub evidence: Vec<EvidenceRow>,
    /// Identifiers of recorded sessions, by file, subject and budget.
    pub recordings: Vec<RecordingRow>,
    /// Context utility of recorded sessions, by file, subject and budget.
    pub utility: Vec<UtilityRow>,
    /// Rules over compactions, by subject.
    pub rules: Vec<RuleRow>,
    /// Budgets that are too small for what has to stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<UnmeasuredBudget>,
    /// What the figures say, in short.
    pub verdicts: Vec<Verdict>,
}

impl QualityReport {
    /// The report without timings, so that two runs are equal.
    #[must_use]
    pub fn without_timings(mut self) -> QualityReport {
        for run in self.evidence.iter_mut().map(|row| &mut row.run) {
            (run.p50_us, run.p99_us) = (0, 0);
        }
        for run in self.recordings.iter_mut().map(|row| &mut row.run) {
            (run.p50_us, run.p99_us) = (0, 0);
        }
        self
    }

    /// Requests of engines over their budget.
    pub fn overruns(&self) -> u64 {
        self.engine_runs().map(|run| run.overruns).sum()
    }

    /// Invariant violations of finished requests of engines.
    pub fn violations(&self) -> u64 {
        self.engine_runs().map(|run| run.violations).sum()
    }

    /// The runs of engines; baselines know no invariants.
    pub fn engine_runs(&self) -> impl Iterator<Item = &RunTotals> {
        let evidence = self.evidence.iter().map(|row| (row.is_baseline, &row.run));
        let recordings = self.recordings.iter().map(|row| (row.is_baseline, &row.run));
        let runs = evidence.chain(recordings);
        runs.filter(|(is_baseline, _)| !is_baseline).map(|(_, run)| run)
    }
}

/// A budget that cannot hold what has to stay, such as pinned entries. It has no figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnmeasuredBudget {
    /// Data set or recording.
    pub file: String,
    /// Engine or baseline.
    pub subject: String,
    /// Budget of a request, in tokens.
    pub budget_tokens: u64,
    /// What does not fit.
    pub reason: String,
}

/// The figures of one file and subject at several budgets.
#[derive(Clone, Debug)]
pub struct MeasuredBudgets<R> {
    /// A row for each budget that was measured.
    pub rows: Vec<R>,
    /// The other budgets.
    pub unmeasured: Vec<UnmeasuredBudget>,
}

impl<R> MeasuredBudgets<R> {
    pub(crate) fn new() -> MeasuredBudgets<R> {
        MeasuredBudgets { rows: Vec::new(), unmeasured: Vec::new() }
    }

    /// Adds a row, or the budget as unmeasured. Only other failures end a benchmark.
    pub(crate) fn add(
        &mut self,
        file: &str,
        budget_tokens: u64,
        measured: Result<R, QualityError>,
    ) -> Result<(), QualityError> {
        match measured {
            Ok(row) => self.rows.push(row),
            Err(QualityError::Engine { subject, source: ContextError::CannotFit(error) }) => {
                let (file, reason) = (file.to_owned(), error.to_string());
                self.unmeasured.push(UnmeasuredBudget { file, subject, budget_tokens, reason });
            }
            Err(error) => return Err(error),
        }
        Ok(())
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
    /// Size of the largest history.
    pub history_tokens: u64,
    /// Size of all requests.
    pub sent_tokens: u64,
    /// Cost of all requests in uncached input tokens, with the unchanged prefix of each request read
    /// from a cache and the rest written to it.
    pub billed_tokens: u64,
    /// Share of each request that is an unchanged prefix of the next, in percent; `None` for single
    /// requests.
    pub stable_prefix_percent: Option<f64>,
    /// Requests that were shaped a second time from the same input.
    pub repeated: u64,
    /// How many of them differ from the first time.
    pub differing: u64,
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
    /// Whether it is a baseline.
    pub is_baseline: bool,
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
    /// Mean share of evidence conversations among the five most shown ones, in percent; `None` if every
    /// prompt shows the whole history.
    pub top5_percent: Option<f64>,
    /// Questions with a replaced answer that show this answer and not the current one, in percent;
    /// `None` without such questions.
    pub stale_only_percent: Option<f64>,
    /// [`recall_percent`](Self::recall_percent) by category.
    pub by_category: Vec<(String, f64)>,
    /// The run.
    pub run: RunTotals,
}

/// Identifiers of one recording with one subject at one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingRow {
    /// Recording.
    pub file: String,
    /// Engine or baseline.
    pub subject: String,
    /// Whether it is a baseline.
    pub is_baseline: bool,
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
    /// Edits of a file whose newest content, read or written, is no longer shown whole, in percent;
    /// `None` without such edits.
    pub reread_percent: Option<f64>,
    /// Number of edits of files that were read or written before.
    pub edits: u64,
    /// The run.
    pub run: RunTotals,
}

/// How well the recorded answers of one recording are predicted with one subject at one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UtilityRow {
    /// Recording.
    pub file: String,
    /// Engine or baseline.
    pub subject: String,
    /// Budget of a request, in tokens.
    pub budget_tokens: u64,
    /// Number of answers.
    pub answers: u64,
    /// Their tokens, as the model counts.
    pub tokens: u64,
    /// Negative log-probability of a token of the answers after the subject's context, in nats.
    pub nats: f64,
    /// The same after nothing.
    pub nats_without: f64,
    /// The same after the whole history.
    pub nats_with_all: f64,
    /// Place between both, from 0 (nothing) to 1 (the whole history); `None` if the whole history
    /// helps no more than nothing.
    pub utility: Option<f64>,
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
    /// Replaced rules that are shown without the rule that replaced them.
    pub stale_only: u64,
}
