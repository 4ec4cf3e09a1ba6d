//! Renders quality reports: one table for each kind of measurement, as terminal text or Markdown.

use ctxhost_quality::report::{EvidenceRow, QualityReport, RecordingRow, RuleRow, RunTotals};

use super::format::{DASH, format_ms, group_digits, one_line};
use super::grid::{Grid, GridColumn};
use super::style::{TextStyle, Tone};

/// A table: title, columns, and rows with a warning flag for invariant violations.
struct QualityTable {
    title: &'static str,
    head: Vec<&'static str>,
    rows: Vec<(Vec<String>, bool)>,
}

/// The tables as terminal text.
pub(crate) fn table(report: &QualityReport, style: TextStyle) -> String {
    let render = |table: QualityTable| {
        let left = |name: &&str| matches!(*name, "file" | "engine");
        let column =
            |name: &&str| if left(name) { GridColumn::left(name) } else { GridColumn::right(name) };
        let mut grid = Grid::new(table.head.iter().map(column).collect());
        for (cells, is_broken) in table.rows {
            grid.row(cells, if is_broken { Tone::Warning } else { Tone::Plain });
        }
        format!("{}\n{}", style.paint(Tone::Strong, table.title), grid.render(style))
    };
    tables(report).into_iter().map(render).collect::<Vec<_>>().join("\n")
}

/// The tables as Markdown.
pub(crate) fn markdown(report: &QualityReport) -> String {
    let render = |table: QualityTable| {
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let ruler = |name: &&str| if matches!(*name, "file" | "engine") { "---" } else { "---:" };
        let head = row(table.head.iter().map(|name| (*name).to_owned()).collect());
        let ruler = row(table.head.iter().map(|name| ruler(name).to_owned()).collect());
        let rows: String = table.rows.into_iter().map(|(cells, _)| row(cells)).collect();
        format!("### {}\n\n{head}{ruler}{rows}", table.title)
    };
    tables(report).into_iter().map(render).collect::<Vec<_>>().join("\n")
}

/// The tables that have rows.
fn tables(report: &QualityReport) -> Vec<QualityTable> {
    let evidence = QualityTable {
        title: "Evidence of labelled questions",
        head: vec![
            "file", "engine", "budget", "recall %", "turns %", "all %", "top 5 %", "room %",
            "over", "trims", "p99 ms",
        ],
        rows: report.evidence.iter().map(evidence_row).collect(),
    };
    let recordings = QualityTable {
        title: "Identifiers of recorded sessions",
        head: vec![
            "file",
            "engine",
            "budget",
            "derivable %",
            "needed %",
            "reread %",
            "prefix %",
            "room %",
            "over",
            "trims",
            "p99 ms",
        ],
        rows: report.recordings.iter().map(recording_row).collect(),
    };
    let rules = QualityTable {
        title: "Rules over compactions",
        head: vec![
            "engine",
            "sessions",
            "compactions",
            "all rules kept",
            "rules kept",
            "replaced still shown",
        ],
        rows: report.rules.iter().map(rule_row).collect(),
    };
    // Each input fills one table; empty ones would only be noise.
    [evidence, recordings, rules].into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn evidence_row(row: &EvidenceRow) -> (Vec<String>, bool) {
    let shares = [row.recall_percent, row.turn_percent, row.all_percent, row.top5_percent];
    let mut cells =
        vec![one_line(&row.file), one_line(&row.subject), group_digits(row.budget_tokens)];
    cells.extend(shares.map(share));
    cells.extend(run_cells(row.run.as_ref()));
    (cells, row.run.as_ref().is_some_and(is_broken))
}

fn recording_row(row: &RecordingRow) -> (Vec<String>, bool) {
    let mut cells =
        vec![one_line(&row.file), one_line(&row.subject), group_digits(row.budget_tokens)];
    cells.extend([row.derivable_percent, row.needed_percent, row.reread_percent].map(share));
    cells.push(row.run.stable_prefix_percent.map_or_else(|| DASH.to_owned(), share));
    cells.extend(run_cells(Some(&row.run)));
    (cells, is_broken(&row.run))
}

fn rule_row(row: &RuleRow) -> (Vec<String>, bool) {
    let of = |part: u64, whole: u64| format!("{} of {}", group_digits(part), group_digits(whole));
    let cells = vec![
        one_line(&row.subject),
        group_digits(row.sessions),
        of(row.applied, row.sessions * row.compactions),
        of(row.sessions_kept, row.sessions),
        of(row.rules_kept, row.rules),
        of(row.stale, row.replaced),
    ];
    // A replaced rule that is still shown misleads the model.
    (cells, row.stale > 0)
}

/// Room, overruns, emergency trims and time.
fn run_cells(run: Option<&RunTotals>) -> [String; 4] {
    let Some(run) = run else { return std::array::from_fn(|_| DASH.to_owned()) };
    [
        share(run.room_percent),
        group_digits(run.overruns + run.violations),
        group_digits(run.emergency_trims),
        format_ms(run.p99_us),
    ]
}

fn is_broken(run: &RunTotals) -> bool {
    run.overruns + run.violations > 0
}

fn share(percent: f64) -> String {
    format!("{percent:.1}")
}
