//! Renders reports as one Markdown table with a row for each session and engine.

use ctxhost_agent::replay::report::{EngineRun, ReplayReport};
use ctxhost_engine::format_engine;
use ctxhost_retention::{Category, Shares};

use super::format::{DASH, format_ms, format_percent, group_digits, one_line};
use super::verdict::FAILED;

/// The categories that get a column.
const CATEGORIES: [Category; 3] = [Category::Asks, Category::Paths, Category::Commands];

/// Renders the table. Runs without a compaction have no retention figures.
pub(crate) fn render(reports: &[ReplayReport], with_timings: bool) -> String {
    let mut head = vec!["session", "window", "engine", "peak", "compactions"];
    head.extend(CATEGORIES.map(Category::name));
    head.extend(["identifiers kept", "stable prefix", "tokens sent", "repairs", "fallbacks"]);
    head.extend(with_timings.then_some("p99 ms"));
    let mut text = row(head.iter().map(|name| (*name).to_owned()));
    text += &format!("|{}\n", head.iter().map(|name| ruler(name)).collect::<String>());
    for report in reports {
        for run in &report.runs {
            let session = [report.session.name.clone(), group_digits(report.window.window_tokens)];
            text += &row(session.into_iter().chain(cells(run, with_timings)));
        }
    }
    text
}

/// Text is left-aligned, numbers right-aligned.
fn ruler(name: &str) -> &'static str {
    if matches!(name, "session" | "engine") { "---|" } else { "---:|" }
}

fn cells(run: &EngineRun, with_timings: bool) -> Vec<String> {
    let totals = &run.totals;
    let mut cells = vec![format_engine(&run.engine.id, &run.engine.version)];
    if run.has_failed() {
        // The figures are those of the fallback.
        let figures = CATEGORIES.len() + 7 + usize::from(with_timings);
        cells.push(FAILED.to_owned());
        cells.extend(std::iter::repeat_n(DASH.to_owned(), figures - 1));
        return cells;
    }
    cells.extend([format_percent(totals.peak_percent), group_digits(totals.compactions)]);
    cells.extend(CATEGORIES.map(|category| least_kept(run, category)));
    cells.push(totals.identifiers_kept_percent.map_or(DASH.into(), format_percent));
    cells.push(format_percent(totals.stable_prefix_percent));
    cells.extend([totals.sent_tokens, totals.repairs, totals.fallbacks].map(group_digits));
    cells.extend(with_timings.then(|| format_ms(totals.engine_p99_us)));
    cells
}

/// The lowest retention of a category over the applied compactions.
fn least_kept(run: &EngineRun, category: Category) -> String {
    let applied = run.compactions.iter().filter(|row| row.applied);
    let shares = applied.filter_map(|row| row.retention).map(|s: Shares| s.of(category));
    let ratios = shares.filter(|share| share.total > 0).map(|share| share.ratio());
    ratios.reduce(f64::min).map_or(DASH.into(), |ratio| format_percent(ratio * 100.0))
}

fn row(cells: impl Iterator<Item = String>) -> String {
    // A pipe in a session name would start a new column.
    let cells: Vec<String> = cells.map(|cell| one_line(&cell).replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn one_line_for_each_session_and_engine() {
        let mut other = sample::compared();
        other.session.name = "a|b.jsonl".into();
        insta::assert_snapshot!(render(&[sample::compared(), other], true));
        let bare = render(&[sample::compared()], false);
        assert!(!bare.contains("p99"), "{bare}");
    }

    #[test]
    fn a_failed_engine_has_a_row_without_figures() {
        let mut report = sample::compared();
        report.runs[1].totals.failed = 1;
        let text = render(&[report], true);
        let pipes: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
        assert!(pipes.iter().all(|count| *count == pipes[0]), "{text}");
        assert!(text.contains("| mask 0.1.0 | FAILED | – |"), "{text}");
    }
}
