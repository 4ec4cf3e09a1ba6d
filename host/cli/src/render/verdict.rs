//! The last lines of a replay: failed engines, which engine is best at what, invariant violations.

use ctxhost_agent::replay::report::{EngineRun, ReplayTotals};

use super::format::{format_count, format_percent, group_digits, one_line};
use super::style::{TextStyle, Tone};

/// Shown in place of the figures of an engine that failed.
pub(crate) const FAILED: &str = "FAILED";

/// A property by which engines are compared.
struct Criterion {
    name: &'static str,
    /// Larger is better; `None` if a run has no such figure.
    merit: fn(&EngineRun) -> Option<f64>,
    figure: fn(&ReplayTotals) -> String,
}

const CRITERIA: [Criterion; 3] = [
    Criterion {
        name: "best retention",
        merit: kept_merit,
        figure: |totals| {
            let share = totals.identifiers_kept_percent.unwrap_or_default();
            format!("{} of identifiers kept", format_percent(share))
        },
    },
    Criterion {
        name: "cheapest",
        merit: sent_merit,
        figure: |totals| format!("{} sent", format_count(totals.sent_tokens, "token")),
    },
    Criterion {
        name: "most stable prefix",
        merit: prefix_merit,
        figure: |totals| format_percent(totals.stable_prefix_percent),
    },
];

/// Which share of the identifiers that came up again an engine kept.
pub(crate) fn kept_merit(run: &EngineRun) -> Option<f64> {
    run.totals.identifiers_kept_percent
}

/// Fewer sent tokens are better.
pub(crate) fn sent_merit(run: &EngineRun) -> Option<f64> {
    Some(-(run.totals.sent_tokens as f64))
}

/// Which share of a prompt is that of the one before.
pub(crate) fn prefix_merit(run: &EngineRun) -> Option<f64> {
    Some(run.totals.stable_prefix_percent)
}

/// The lines about failures, the comparison of the other engines, and the invariants.
pub(crate) fn render(runs: &[EngineRun], style: TextStyle) -> String {
    let failed = runs.iter().filter(|run| run.has_failed());
    let mut text: String = failed.map(|run| failure_line(run, runs.len() > 1, style)).collect();
    if let Some(line) = comparison_line(runs) {
        text += &format!("{}\n", style.paint(Tone::Strong, &line));
    }
    text + &invariants_line(runs, style)
}

fn failure_line(run: &EngineRun, is_comparison: bool, style: TextStyle) -> String {
    let (id, totals) = (one_line(&run.engine.id), &run.totals);
    let requests = format_count(totals.requests, "request");
    let shaped = group_digits(totals.fallbacks);
    let figures = if is_comparison {
        "its figures are left out"
    } else if totals.fallbacks >= totals.requests {
        "the figures above are of that engine"
    } else {
        "the figures above are of both"
    };
    let line = format!("{id} {FAILED}: another engine shaped {shaped} of {requests}; {figures}");
    format!("{}\n", style.paint(Tone::Bad, &line))
}

/// Which engine is best at what; `None` if there are not two to compare.
fn comparison_line(runs: &[EngineRun]) -> Option<String> {
    let sound: Vec<&EngineRun> = runs.iter().filter(|run| !run.has_failed()).collect();
    if sound.len() < 2 {
        return None;
    }
    let parts: Vec<String> =
        CRITERIA.iter().filter_map(|criterion| winner(criterion, &sound)).collect();
    Some(format!("verdict: {}", parts.join(" · ")))
}

/// The runs with the best figure, several if they are equal; `None` if no run has this figure.
pub(crate) fn best_runs<'a>(
    runs: &[&'a EngineRun],
    merit: fn(&EngineRun) -> Option<f64>,
) -> Option<BestRuns<'a>> {
    let best = runs.iter().filter_map(|run| merit(run)).reduce(f64::max)?;
    let winners: Vec<&EngineRun> =
        runs.iter().copied().filter(|run| merit(run) == Some(best)).collect();
    let first = *winners.first()?;
    let names: Vec<String> = winners.iter().map(|run| one_line(&run.engine.id)).collect();
    Some(BestRuns { first, names, is_tie: winners.len() == runs.len() })
}

/// The runs with the best figure.
pub(crate) struct BestRuns<'a> {
    /// The first of them, whose figure is that of all.
    pub(crate) first: &'a EngineRun,
    /// Their engines.
    pub(crate) names: Vec<String>,
    /// Whether all runs have this figure.
    pub(crate) is_tie: bool,
}

/// `cheapest mask (12,345 tokens sent)`; all names if several are equal.
fn winner(criterion: &Criterion, runs: &[&EngineRun]) -> Option<String> {
    let BestRuns { first, names, is_tie } = best_runs(runs, criterion.merit)?;
    let names = if is_tie { "no difference".to_owned() } else { names.join(" and ") };
    let figure = (criterion.figure)(&first.totals);
    Some(format!("{}: {names} ({figure})", criterion.name))
}

fn invariants_line(runs: &[EngineRun], style: TextStyle) -> String {
    let violations: u64 = runs.iter().map(|run| run.totals.violations).sum();
    let requests: u64 = runs.iter().map(|run| run.totals.requests).sum();
    let requests = format_count(requests, "request");
    let (tone, line) = match violations {
        // Not in green below a failure: the requests were sound because another engine made them.
        0 if runs.iter().any(EngineRun::has_failed) => {
            (Tone::Plain, format!("0 invariant violations in {requests}"))
        }
        0 => (Tone::Good, format!("0 invariant violations in {requests}")),
        _ => (
            Tone::Bad,
            format!(
                "{} in {requests}; this is a defect of ctxhost, please report it",
                format_count(violations, "invariant violation"),
            ),
        ),
    };
    format!("{}\n", style.paint(tone, &line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn the_best_engine_of_each_criterion_is_named() {
        let mut report = sample::compared();
        let text = render(&report.runs, TextStyle::default());
        insta::assert_snapshot!(text);
        report.runs.truncate(1);
        let text = render(&report.runs, TextStyle::default());
        assert!(!text.contains("verdict"), "{text}");
    }

    #[test]
    fn a_failed_engine_takes_no_part() {
        let mut report = sample::compared();
        let totals = &mut report.runs[1].totals;
        (totals.sent_tokens, totals.failed, totals.fallbacks) = (1, 2, 2);
        let style = TextStyle { color: true, width: None };
        let text = render(&report.runs, style);
        assert!(text.contains("mask FAILED: another engine shaped 2 of 300 requests"), "{text}");
        let verdict = text.lines().find(|line| line.contains("verdict")).unwrap();
        assert!(!verdict.contains("mask"), "{text}");
        assert!(!text.contains("\u{1b}[32m"), "nothing is green: {text:?}");
    }
}
