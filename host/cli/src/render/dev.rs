//! Compares a generation of an engine with the bundled engine and the last good generation.

use std::path::Path;

use crate::session_arg::shell_quote;
use ctxhost_agent::replay::report::{EngineRun, ReplayWindow, ReplayedSession};

use super::fallback::fallback_reasons;
use super::format::{DASH, format_count, format_ms, format_percent, group_digits, one_line};
use super::grid::{Grid, GridColumn};
use super::style::{TextStyle, Tone};
use super::verdict::FAILED;

/// The runs to compare.
pub(crate) struct RunComparison<'a> {
    pub(crate) session: &'a ReplayedSession,
    pub(crate) window: &'a ReplayWindow,
    /// The generation.
    pub(crate) name: &'a str,
    /// The built library.
    pub(crate) library: &'a Path,
    pub(crate) run: &'a EngineRun,
    pub(crate) legacy: &'a EngineRun,
    /// The last good generation and its run.
    pub(crate) last_good: Option<(&'a str, &'a EngineRun)>,
}

/// A metric of a run.
struct ComparisonMetric {
    name: &'static str,
    of: fn(&EngineRun) -> Option<f64>,
    unit: MetricUnit,
}

#[derive(Clone, Copy)]
enum MetricUnit {
    Percent,
    Number,
    Milliseconds,
}

const METRICS: [ComparisonMetric; 9] = [
    metric("peak of budget", MetricUnit::Percent, |run| Some(run.totals.peak_percent)),
    metric("compactions", MetricUnit::Number, |run| Some(run.totals.compactions as f64)),
    metric("lowest retention", MetricUnit::Percent, lowest_retention),
    metric("identifiers kept", MetricUnit::Percent, |run| run.totals.identifiers_kept_percent),
    metric("stable prefix", MetricUnit::Percent, |run| Some(run.totals.stable_prefix_percent)),
    metric("tokens sent", MetricUnit::Number, |run| Some(run.totals.sent_tokens as f64)),
    metric("repairs", MetricUnit::Number, |run| Some(run.totals.repairs as f64)),
    metric("fallbacks", MetricUnit::Number, |run| Some(run.totals.fallbacks as f64)),
    metric("engine p99 ms", MetricUnit::Milliseconds, |run| Some(run.totals.engine_p99_us as f64)),
];

const fn metric(
    name: &'static str,
    unit: MetricUnit,
    of: fn(&EngineRun) -> Option<f64>,
) -> ComparisonMetric {
    ComparisonMetric { name, of, unit }
}

/// The lowest retention of an applied compaction, as the mean of its categories.
fn lowest_retention(run: &EngineRun) -> Option<f64> {
    let applied = run.compactions.iter().filter(|row| row.applied);
    let shares = applied.filter_map(|row| row.retention).map(|shares| shares.mean() * 100.0);
    shares.reduce(f64::min)
}

/// The comparison as a table, then the problems.
pub(crate) fn render(comparison: &RunComparison<'_>, style: TextStyle) -> String {
    let RunComparison { session, window, name, library, run, legacy, last_good } = comparison;
    let mut columns =
        vec![GridColumn::left(""), GridColumn::right(name), GridColumn::right("legacy")];
    columns.push(GridColumn::right("vs legacy"));
    columns.extend(last_good.map(|(name, _)| GridColumn::right(&format!("vs {name}"))));
    let mut grid = Grid::new(columns);
    for figure in &METRICS {
        let others = [Some(*legacy), last_good.map(|(_, run)| run)];
        let mut cells = vec![figure.name.to_owned(), figure.shown(run), figure.shown(legacy)];
        cells.extend(others.into_iter().flatten().map(|other| figure.difference(run, other)));
        grid.row(cells, Tone::Plain);
    }
    let head = format!(
        "{} · window {} · {}",
        style.paint(Tone::Strong, &one_line(&session.name)),
        group_digits(window.window_tokens),
        format_count(session.requests, "request"),
    );
    let troubles =
        problem_lines(run, library).into_iter().map(|line| style.paint(Tone::Bad, &line) + "\n");
    format!("{head}\n\n{}\n{}", grid.render(style), troubles.collect::<String>())
}

/// Problems that the author must see.
fn problem_lines(run: &EngineRun, library: &Path) -> Vec<String> {
    let totals = &run.totals;
    let mut lines = Vec::new();
    if run.has_failed() {
        lines.push(format!("{FAILED}: no figures, since they would be those of the fallback"));
    }
    if !totals.quarantine.is_empty() {
        lines.push(format!("in quarantine: {}", one_line(&totals.quarantine)));
    }
    if totals.fallbacks > 0 {
        let (fallbacks, requests) =
            (group_digits(totals.fallbacks), format_count(totals.requests, "request"));
        lines.push(format!("another engine shaped {fallbacks} of {requests}"));
        lines.extend(fallback_reasons(run).into_iter().map(|why| format!("  in {why}")));
    }
    // Repairs are silent in production, so the author has to learn of them here.
    if totals.repairs > 0 {
        let repairs = format_count(totals.repairs, "plan");
        let library = shell_quote(library);
        lines.push(format!(
            "the host repaired {repairs} that violated invariants; details: ctxhost check {library}"
        ));
    }
    if totals.violations > 0 {
        let violations = format_count(totals.violations, "invariant violation");
        lines.push(format!("{violations} in finished requests: a defect of ctxhost"));
    }
    lines
}

impl ComparisonMetric {
    /// The value of a run; `None` if the engine failed, since it would be that of the fallback.
    fn value(&self, run: &EngineRun) -> Option<f64> {
        if run.has_failed() { None } else { (self.of)(run) }
    }

    fn shown(&self, run: &EngineRun) -> String {
        self.value(run).map_or(DASH.into(), |value| self.unit.shown(value))
    }

    /// The difference of two runs in this metric.
    fn difference(&self, run: &EngineRun, other: &EngineRun) -> String {
        match (self.value(run), self.value(other)) {
            (Some(value), Some(other)) => self.unit.difference(value - other),
            _ => DASH.into(),
        }
    }
}

impl MetricUnit {
    fn shown(self, value: f64) -> String {
        match self {
            MetricUnit::Percent => format_percent(value),
            MetricUnit::Number => group_digits(value as u64),
            MetricUnit::Milliseconds => format_ms(value as u64),
        }
    }

    /// Signed; differences of percentages are in points.
    fn difference(self, value: f64) -> String {
        let shown = match self {
            MetricUnit::Percent => format!("{:.1}", value.abs()),
            other => other.shown(value.abs()),
        };
        // Decided after rounding, so that -0.04 does not become `-0.0`.
        let is_nothing = shown.chars().all(|char| matches!(char, '0' | '.'));
        let sign = if is_nothing {
            ""
        } else if value < 0.0 {
            "-"
        } else {
            "+"
        };
        format!("{sign}{shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn metrics_are_compared_with_other_runs() {
        let report = sample::compared();
        let [run, legacy] = [&report.runs[0], &report.runs[1]];
        let comparison = RunComparison {
            session: &report.session,
            window: &report.window,
            name: "mask@dev.2",
            library: Path::new("target/release/libmask.so"),
            run,
            legacy,
            last_good: Some(("mask@dev.1", run)),
        };
        insta::assert_snapshot!(render(&comparison, TextStyle::default()));
    }

    #[test]
    fn problems_are_reported() {
        let report = sample::troubled();
        let lines = problem_lines(&report.runs[0], Path::new("target/my engine.so"));
        assert!(lines[0].starts_with("FAILED: no figures"), "{lines:?}");
        let shaped = lines.iter().position(|line| line.starts_with("another engine shaped"));
        assert!(lines[shaped.unwrap() + 1].starts_with("  in "), "the reason: {lines:?}");
        assert!(lines.iter().any(|line| line.contains("defect of ctxhost")), "{lines:?}");
        let way_out = "details: ctxhost check 'target/my engine.so'";
        assert!(lines.iter().any(|line| line.ends_with(way_out)), "{lines:?}");
    }

    #[test]
    fn differences_are_signed() {
        assert_eq!(MetricUnit::Percent.difference(-3.94), "-3.9");
        assert_eq!(MetricUnit::Percent.difference(-0.04), "0.0");
        assert_eq!(MetricUnit::Number.difference(12_345.0), "+12,345");
        assert_eq!(MetricUnit::Milliseconds.difference(-1_500.0), "-1.50");
        assert_eq!(MetricUnit::Number.difference(0.0), "0");
    }
}
