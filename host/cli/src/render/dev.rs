//! A generation of an engine beside the bundled engine and the generation before, figure by figure.

use std::path::Path;

use crate::named::for_shell;
use ctxhost_runtime::replay::report::{Run, SessionFacts, WindowFacts};

use super::grid::{Column, Grid};
use super::paint::{Style, Tone};
use super::phrase::{clean, counted, grouped, milliseconds, percent};

/// What stands where nothing was measured.
const NOTHING: &str = "–";

/// What is held against each other.
pub(crate) struct Comparison<'a> {
    pub(crate) session: &'a SessionFacts,
    pub(crate) window: &'a WindowFacts,
    /// The generation, and what it did.
    pub(crate) name: &'a str,
    /// Where the build left it.
    pub(crate) library: &'a Path,
    pub(crate) run: &'a Run,
    pub(crate) legacy: &'a Run,
    /// The generation before, and what that did.
    pub(crate) before: Option<(&'a str, &'a Run)>,
}

/// A figure of a run.
struct Figure {
    name: &'static str,
    of: fn(&Run) -> Option<f64>,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Percent,
    Number,
    Milliseconds,
}

const FIGURES: [Figure; 9] = [
    figure("peak of budget", Unit::Percent, |run| Some(run.totals.peak_percent)),
    figure("compactions", Unit::Number, |run| Some(run.totals.compactions as f64)),
    figure("survival, least", Unit::Percent, least_survival),
    figure("identifiers kept", Unit::Percent, |run| run.totals.identifiers_kept_percent),
    figure("stable prefix", Unit::Percent, |run| Some(run.totals.stable_prefix_percent)),
    figure("tokens sent", Unit::Number, |run| Some(run.totals.sent_tokens as f64)),
    figure("repairs", Unit::Number, |run| Some(run.totals.repairs as f64)),
    figure("fallbacks", Unit::Number, |run| Some(run.totals.fallbacks as f64)),
    figure("engine p99 ms", Unit::Milliseconds, |run| Some(run.totals.engine_p99_us as f64)),
];

const fn figure(name: &'static str, unit: Unit, of: fn(&Run) -> Option<f64>) -> Figure {
    Figure { name, of, unit }
}

/// What the compaction that kept least kept, as the mean over what is counted.
fn least_survival(run: &Run) -> Option<f64> {
    let applied = run.compactions.iter().filter(|row| row.applied);
    let shares = applied.filter_map(|row| row.survival).map(|shares| shares.mean() * 100.0);
    shares.reduce(f64::min)
}

/// The comparison as a table, then what went wrong.
pub(crate) fn render(comparison: &Comparison<'_>, style: Style) -> String {
    let Comparison { session, window, name, library, run, legacy, before } = comparison;
    let mut columns = vec![Column::left(""), Column::right(name), Column::right("legacy")];
    columns.push(Column::right("against legacy"));
    columns.extend(before.map(|(name, _)| Column::right(&format!("against {name}"))));
    let mut grid = Grid::new(columns);
    for figure in &FIGURES {
        let others = [Some(*legacy), before.map(|(_, run)| run)];
        let mut cells = vec![figure.name.to_owned(), figure.shown(run), figure.shown(legacy)];
        cells.extend(others.into_iter().flatten().map(|other| figure.difference(run, other)));
        grid.row(cells, Tone::Plain);
    }
    let head = format!(
        "{} · window {} · {}",
        style.paint(Tone::Strong, &clean(&session.name)),
        grouped(window.window_tokens),
        counted(session.requests, "request"),
    );
    let troubles =
        troubles(run, library).into_iter().map(|line| style.paint(Tone::Bad, &line) + "\n");
    format!("{head}\n\n{}\n{}", grid.render(style), troubles.collect::<String>())
}

/// What an author must not overlook.
fn troubles(run: &Run, library: &Path) -> Vec<String> {
    let totals = &run.totals;
    let mut lines = Vec::new();
    if !totals.quarantine.is_empty() {
        lines.push(format!("in quarantine: {}", clean(&totals.quarantine)));
    }
    if totals.fallbacks > 0 {
        let (fallbacks, requests) =
            (grouped(totals.fallbacks), counted(totals.requests, "request"));
        lines.push(format!("another engine shaped {fallbacks} of {requests}"));
    }
    if totals.repairs > 0 {
        let repairs = counted(totals.repairs, "plan");
        let library = for_shell(library);
        lines.push(format!(
            "the host mended {repairs} that broke a law; which: ctxhost check {library}"
        ));
    }
    if totals.violations > 0 {
        let violations = counted(totals.violations, "law");
        lines.push(format!("{violations} broken in finished requests: a defect of ctxhost"));
    }
    lines
}

impl Figure {
    fn shown(&self, run: &Run) -> String {
        (self.of)(run).map_or(NOTHING.into(), |value| self.unit.shown(value))
    }

    /// How much more the first has than the second.
    fn difference(&self, run: &Run, other: &Run) -> String {
        match ((self.of)(run), (self.of)(other)) {
            (Some(value), Some(other)) => self.unit.difference(value - other),
            _ => NOTHING.into(),
        }
    }
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Unit::Percent => percent(value),
            Unit::Number => grouped(value as u64),
            Unit::Milliseconds => milliseconds(value as u64),
        }
    }

    /// With its sign; percents differ by points.
    fn difference(self, value: f64) -> String {
        let shown = match self {
            Unit::Percent => format!("{:.1}", value.abs()),
            other => other.shown(value.abs()),
        };
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
    fn figures_stand_beside_those_of_others() {
        let report = sample::compared();
        let [run, legacy] = [&report.runs[0], &report.runs[1]];
        let comparison = Comparison {
            session: &report.session,
            window: &report.window,
            name: "mask@dev.2",
            library: Path::new("target/release/libmask.so"),
            run,
            legacy,
            before: Some(("mask@dev.1", run)),
        };
        insta::assert_snapshot!(render(&comparison, Style::default()));
    }

    #[test]
    fn what_went_wrong_is_said() {
        let report = sample::troubled();
        let lines = troubles(&report.runs[0], Path::new("target/my engine.so"));
        assert!(lines.iter().any(|line| line.starts_with("another engine shaped")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("defect of ctxhost")), "{lines:?}");
        let way_out = "which: ctxhost check 'target/my engine.so'";
        assert!(lines.iter().any(|line| line.ends_with(way_out)), "{lines:?}");
    }

    #[test]
    fn differences_have_a_sign_where_there_is_one() {
        assert_eq!(Unit::Percent.difference(-3.94), "-3.9");
        assert_eq!(Unit::Percent.difference(-0.04), "0.0");
        assert_eq!(Unit::Number.difference(12_345.0), "+12,345");
        assert_eq!(Unit::Milliseconds.difference(-1_500.0), "-1.50");
        assert_eq!(Unit::Number.difference(0.0), "0");
    }
}
