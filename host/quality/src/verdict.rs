//! What the figures say in short: the best subject of each aspect, by file and budget.

use serde::Serialize;

use crate::context::percent;
use crate::report::{QualityReport, RecordingRow, RunTotals, UtilityRow};

/// What a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictAspect {
    /// The whole history fits, so no engine is needed. The value is its size in tokens.
    KeepWhole,
    /// Most evidence shown, in percent.
    MostEvidence,
    /// Most identifiers of the next step shown, in percent.
    MostIdentifiers,
    /// Best predicted answers, from 0 to 1.
    BestUtility,
    /// Fewest billed tokens for a request.
    Cheapest,
    /// Most stable prefix, in percent.
    StablestPrefix,
    /// Most rules shown after compactions, in percent.
    MostRules,
}

/// The best subjects of one aspect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Data set or recording; empty for generated sessions.
    pub file: String,
    /// Aspect.
    pub aspect: VerdictAspect,
    /// Budget of a request, in tokens; 0 for generated sessions.
    pub budget_tokens: u64,
    /// The subjects with the best value.
    pub subjects: Vec<String>,
    /// Their value.
    pub value: f64,
}

impl QualityReport {
    /// Fills [`verdicts`](Self::verdicts).
    #[must_use]
    pub fn judge(mut self) -> QualityReport {
        let mut verdicts: Vec<Verdict> = Vec::new();
        for figure in self.figures() {
            let is_same = |verdict: &&mut Verdict| {
                (&verdict.file, verdict.aspect, verdict.budget_tokens)
                    == (&figure.file, figure.aspect, figure.budget_tokens)
            };
            match verdicts.iter_mut().find(is_same) {
                None => verdicts.push(figure),
                Some(best) => best.challenge(figure),
            }
        }
        verdicts.sort_by_key(|verdict| (verdict.file.clone(), verdict.aspect as u8));
        self.verdicts = verdicts;
        self
    }

    /// The figures of all subjects that kept their budget, each as a verdict of its own.
    fn figures(&self) -> Vec<Verdict> {
        let mut figures = Vec::new();
        for row in &self.evidence {
            let budget = row.budget_tokens;
            let mut add = |aspect, value| {
                figures.push(Verdict::of_one(&row.file, &row.subject, budget, aspect, value));
            };
            match fit_of(&row.run, budget) {
                RunFit::Whole(tokens) => add(VerdictAspect::KeepWhole, tokens),
                RunFit::Budget => add(VerdictAspect::MostEvidence, row.recall_percent),
                RunFit::Neither => {}
            }
        }
        for row in &self.recordings {
            let budget = row.budget_tokens;
            let mut add = |aspect, value| {
                figures.push(Verdict::of_one(&row.file, &row.subject, budget, aspect, value));
            };
            match fit_of(&row.run, budget) {
                RunFit::Whole(tokens) => add(VerdictAspect::KeepWhole, tokens),
                RunFit::Budget => {
                    add(VerdictAspect::MostIdentifiers, row.derivable_percent);
                    let cost = row.run.billed_tokens.div_ceil(row.run.requests.max(1));
                    add(VerdictAspect::Cheapest, cost as f64);
                    if let Some(prefix) = row.run.stable_prefix_percent {
                        add(VerdictAspect::StablestPrefix, prefix);
                    }
                }
                RunFit::Neither => {}
            }
        }
        // A context over its budget saw more than the others, so its score says nothing.
        for row in self.utility.iter().filter(|row| self.keeps_budget(row)) {
            let (budget, aspect) = (row.budget_tokens, VerdictAspect::BestUtility);
            let of_one = |value| Verdict::of_one(&row.file, &row.subject, budget, aspect, value);
            figures.extend(row.utility.map(of_one));
        }
        figures.extend(self.rules.iter().map(|row| {
            let kept = percent(row.rules_kept as f64, row.rules as f64);
            Verdict::of_one("", &row.subject, 0, VerdictAspect::MostRules, kept)
        }));
        figures
    }

    /// Whether the requests behind a utility fit their budget and are not the whole history.
    fn keeps_budget(&self, utility: &UtilityRow) -> bool {
        let is_same = |row: &&RecordingRow| {
            (&row.file, &row.subject, row.budget_tokens)
                == (&utility.file, &utility.subject, utility.budget_tokens)
        };
        let row = self.recordings.iter().find(is_same);
        row.is_some_and(|row| matches!(fit_of(&row.run, row.budget_tokens), RunFit::Budget))
    }
}

/// Whether a run is comparable.
enum RunFit {
    /// The largest history of the file fits; its size in tokens.
    Whole(f64),
    /// Every request fits.
    Budget,
    Neither,
}

fn fit_of(run: &RunTotals, budget_tokens: u64) -> RunFit {
    if run.history_tokens <= budget_tokens {
        RunFit::Whole(run.history_tokens as f64)
    // Figures of an engine that breaks its budget are in the tables, but win nothing.
    } else if run.overruns + run.violations == 0 {
        RunFit::Budget
    } else {
        RunFit::Neither
    }
}

impl Verdict {
    /// The figure of one subject.
    fn of_one(
        file: &str,
        subject: &str,
        budget_tokens: u64,
        aspect: VerdictAspect,
        value: f64,
    ) -> Verdict {
        let (file, subjects) = (file.to_owned(), vec![subject.to_owned()]);
        Verdict { file, aspect, budget_tokens, subjects, value }
    }

    /// Replaces the best subject by a better one, or adds an equal one.
    fn challenge(&mut self, figure: Verdict) {
        let better = match self.aspect {
            // Every subject states the size of the history; none competes.
            VerdictAspect::KeepWhole => return,
            VerdictAspect::Cheapest => self.value - figure.value,
            _ => figure.value - self.value,
        };
        if better > 0.0 {
            self.subjects.clear();
            self.value = figure.value;
        }
        // Equal values share the first place: which comes first in the table is chance.
        if better >= 0.0 {
            self.subjects.extend(figure.subjects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::EvidenceRow;

    fn evidence(
        subject: &str,
        budget_tokens: u64,
        recall_percent: f64,
        overruns: u64,
    ) -> EvidenceRow {
        let run = RunTotals { history_tokens: 9_000, overruns, ..RunTotals::default() };
        let (file, subject) = ("f".to_owned(), subject.to_owned());
        EvidenceRow { file, subject, budget_tokens, recall_percent, run, ..EvidenceRow::default() }
    }

    #[test]
    fn the_best_subject_that_keeps_its_budget_wins() {
        let report = QualityReport {
            evidence: vec![
                evidence("recall", 4_000, 90.0, 0),
                evidence("bm25", 4_000, 80.0, 0),
                evidence("whole", 4_000, 100.0, 3),
                evidence("recall", 16_000, 100.0, 0),
            ],
            ..QualityReport::default()
        };
        let verdicts = report.judge().verdicts;
        let shown: Vec<_> = verdicts
            .iter()
            .map(|verdict| (verdict.aspect, verdict.budget_tokens, verdict.subjects.join(",")))
            .collect();
        assert_eq!(
            shown,
            [
                (VerdictAspect::KeepWhole, 16_000, "recall".to_owned()),
                (VerdictAspect::MostEvidence, 4_000, "recall".to_owned()),
            ]
        );
    }

    #[test]
    fn a_context_over_its_budget_has_no_best_utility() {
        let row = |subject: &str, overruns| RecordingRow {
            subject: subject.to_owned(),
            budget_tokens: 10,
            run: RunTotals { history_tokens: 99, overruns, ..RunTotals::default() },
            ..RecordingRow::default()
        };
        let utility = |subject: &str, utility| UtilityRow {
            subject: subject.to_owned(),
            budget_tokens: 10,
            utility: Some(utility),
            ..UtilityRow::default()
        };
        let report = QualityReport {
            recordings: vec![row("tail", 0), row("whole", 7)],
            utility: vec![utility("tail", 0.5), utility("whole", 1.0)],
            ..QualityReport::default()
        };
        let verdicts = report.judge().verdicts;
        let best = verdicts.iter().find(|verdict| verdict.aspect == VerdictAspect::BestUtility);
        assert_eq!(best.unwrap().subjects, ["tail"]);
    }

    #[test]
    fn equal_subjects_share_a_verdict_and_fewer_tokens_win() {
        let row = |subject: &str, billed_tokens| RecordingRow {
            subject: subject.to_owned(),
            budget_tokens: 10,
            derivable_percent: 50.0,
            run: RunTotals {
                requests: 1,
                history_tokens: 99,
                billed_tokens,
                ..RunTotals::default()
            },
            ..RecordingRow::default()
        };
        let recordings = vec![row("a", 30), row("b", 20)];
        let verdicts = QualityReport { recordings, ..QualityReport::default() }.judge().verdicts;
        assert_eq!(verdicts[0].subjects, ["a", "b"]);
        assert_eq!(
            (verdicts[1].aspect, &verdicts[1].subjects[..]),
            (VerdictAspect::Cheapest, &["b".to_owned()][..])
        );
    }
}
