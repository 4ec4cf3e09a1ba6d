//! Renders quality reports: the verdict and tables, as terminal text or Markdown.

use ctxhost_quality::report::{
    EvidenceRow, QualityReport, RecordingRow, RuleRow, RunTotals, UnmeasuredBudget, UtilityRow,
};
use ctxhost_quality::verdict::{Verdict, VerdictAspect};

use super::format::{DASH, format_count, format_ms, group_digits, one_line};
use super::grid::{Grid, GridColumn};
use super::style::{TextStyle, Tone};

/// A table: title, what it shows, columns, and rows with a flag for figures that are not comparable.
pub(super) struct QualityTable {
    pub(super) title: String,
    pub(super) lead: &'static str,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<(Vec<String>, bool)>,
}

/// The report as terminal text, in 80 columns.
pub(crate) fn text(report: &QualityReport, style: TextStyle) -> String {
    let render = |table: QualityTable| {
        let column = |name: &&str| {
            if is_text(name) { GridColumn::left(name) } else { GridColumn::right(name) }
        };
        let mut grid = Grid::new(table.head.iter().map(column).collect());
        for (cells, is_broken) in table.rows {
            grid.row(cells, if is_broken { Tone::Warning } else { Tone::Plain });
        }
        format!("{}\n{}", style.paint(Tone::Strong, &table.title), grid.render(style))
    };
    let mut parts: Vec<String> = all_tables(report).into_iter().map(render).collect();
    parts.extend(checks(report).map(|checks| format!("{}\n", checks.replace(" · ", "\n"))));
    parts.join("\n")
}

/// The report as Markdown.
pub(crate) fn markdown(report: &QualityReport) -> String {
    let render = |table: QualityTable| {
        // A pipe in a name would start a new column.
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let escape = |cell: String| cell.replace('|', "\\|");
        let ruler = |name: &&str| if is_text(name) { "---" } else { "---:" };
        let head = row(table.head.iter().map(|name| (*name).to_owned()).collect());
        let ruler = row(table.head.iter().map(|name| ruler(name).to_owned()).collect());
        let rows =
            table.rows.into_iter().map(|(cells, _)| row(cells.into_iter().map(escape).collect()));
        format!(
            "### {}\n\n{}\n\n{head}{ruler}{}",
            table.title,
            table.lead,
            rows.collect::<String>()
        )
    };
    let mut parts: Vec<String> = all_tables(report).into_iter().map(render).collect();
    parts.extend(checks(report).map(|checks| format!("{checks}\n")));
    parts.join("\n")
}

/// Whether a column holds text.
pub(super) fn is_text(name: &str) -> bool {
    matches!(name, "engine" | "best" | "file" | "reason")
}

/// What must hold for every engine; `None` if no request was shaped by one.
pub(super) fn checks(report: &QualityReport) -> Option<String> {
    let (mut requests, mut repeated, mut differing) = (0, 0, 0);
    for run in report.engine_runs() {
        requests += run.requests;
        repeated += run.repeated;
        differing += run.differing;
    }
    let text = format!(
        "{} of {} over their budget · {} · {} of {} differ",
        group_digits(report.overruns()),
        format_count(requests, "engine request"),
        format_count(report.violations(), "invariant violation"),
        group_digits(differing),
        format_count(repeated, "repeated request"),
    );
    (requests > 0).then_some(text)
}

fn all_tables(report: &QualityReport) -> Vec<QualityTable> {
    verdict_tables(report).into_iter().chain(tables(report)).collect()
}

/// The best engines of each file.
pub(super) fn verdict_tables(report: &QualityReport) -> Vec<QualityTable> {
    let files = report.verdicts.chunk_by(|one, other| one.file == other.file);
    let of_file = |verdicts: &[Verdict]| {
        let file = verdicts.first().map_or("", |verdict| verdict.file.as_str());
        let same = |one: &Verdict, other: &Verdict| {
            one.aspect == other.aspect
                && (one.subjects == other.subjects || one.aspect == VerdictAspect::KeepWhole)
        };
        QualityTable {
            title: match file {
                "" => "Verdict · generated sessions".to_owned(),
                file => format!("Verdict · {}", one_line(file)),
            },
            lead: "The best engine or baseline that keeps the budget.",
            head: vec!["best", "engine", "value", "budget"],
            rows: verdicts.chunk_by(same).map(verdict_row).collect(),
        }
    };
    files.map(of_file).collect()
}

/// Verdicts of neighbouring budgets with the same winner.
fn verdict_row(verdicts: &[Verdict]) -> (Vec<String>, bool) {
    let Some(first) = verdicts.first() else { return (Vec::new(), false) };
    let (what, unit) = match first.aspect {
        VerdictAspect::KeepWhole => ("keep the whole history", "tokens"),
        VerdictAspect::MostEvidence => ("most evidence", "%"),
        VerdictAspect::MostIdentifiers => ("most identifiers", "%"),
        VerdictAspect::BestUtility => ("best utility", "of 1"),
        VerdictAspect::Cheapest => ("cheapest request", "tokens"),
        VerdictAspect::StablestPrefix => ("most stable prefix", "%"),
        VerdictAspect::MostRules => ("most rules kept", "%"),
    };
    let value = |value: f64| match unit {
        "tokens" => group_digits(value as u64),
        "%" => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let values = range(verdicts.iter().map(|verdict| verdict.value), value);
    let budgets = verdicts.iter().map(|verdict| verdict.budget_tokens as f64);
    let subjects = match (first.aspect, first.subjects.as_slice()) {
        (VerdictAspect::KeepWhole, _) => "none needed".to_owned(),
        (_, [one]) => one_line(one),
        (_, [one, other]) => format!("{}, {}", one_line(one), one_line(other)),
        (_, [one, rest @ ..]) => format!("{} and {} more", one_line(one), rest.len()),
        (_, []) => DASH.to_owned(),
    };
    let budgets = match first.budget_tokens {
        0 => DASH.to_owned(),
        _ => range(budgets, |tokens| group_digits(tokens as u64)),
    };
    (vec![what.to_owned(), subjects, format!("{values} {unit}"), budgets], false)
}

/// `2` or `2–5`.
fn range(values: impl Iterator<Item = f64> + Clone, shown: impl Fn(f64) -> String) -> String {
    let least = shown(values.clone().fold(f64::INFINITY, f64::min));
    let most = shown(values.fold(f64::NEG_INFINITY, f64::max));
    if least == most { least } else { format!("{least}–{most}") }
}

/// The tables that have rows: those of each file, then the rules.
pub(super) fn tables(report: &QualityReport) -> Vec<QualityTable> {
    let mut all = Vec::new();
    let mut files: Vec<&str> = Vec::new();
    let evidence = report.evidence.iter().map(|row| row.file.as_str());
    for file in evidence.chain(report.recordings.iter().map(|row| row.file.as_str())) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    for file in files {
        all.extend([evidence_table, recording_table, utility_table, request_table].map(
            |table: fn(&QualityReport, &str) -> QualityTable| {
                let table = table(report, file);
                QualityTable { title: format!("{} · {}", table.title, one_line(file)), ..table }
            },
        ));
    }
    all.push(rule_table(report));
    all.push(unmeasured_table(report));
    // Each input fills some tables; empty ones would only be noise.
    all.retain(|table| !table.rows.is_empty());
    all
}

fn unmeasured_table(report: &QualityReport) -> QualityTable {
    let row = |budget: &UnmeasuredBudget| {
        let reason = one_line(&budget.reason);
        let budget_tokens = group_digits(budget.budget_tokens);
        (vec![one_line(&budget.file), one_line(&budget.subject), budget_tokens, reason], true)
    };
    QualityTable {
        title: "Not measured".to_owned(),
        lead: "Budgets that cannot hold what has to stay.",
        head: vec!["file", "engine", "budget", "reason"],
        rows: report.unmeasured.iter().map(row).collect(),
    }
}

fn evidence_table(report: &QualityReport, file: &str) -> QualityTable {
    let rows: Vec<&EvidenceRow> = report.evidence.iter().filter(|row| row.file == file).collect();
    let questions = rows.first().map_or(0, |row| row.questions);
    let cells = |row: &&EvidenceRow| {
        let mut cells = first_cells(&row.subject, row.budget_tokens);
        cells.extend([row.recall_percent, row.turn_percent, row.all_percent].map(share));
        let shares = [row.top5_percent, row.stale_only_percent];
        cells.extend(shares.map(|percent| percent.map_or(DASH.to_owned(), share)));
        (cells, is_broken(row.is_baseline, &row.run))
    };
    QualityTable {
        title: format!("Evidence of {}", format_count(questions, "question")),
        lead: "Recall: tokens of the evidence that the prompt shows verbatim. Turns: evidence turns shown whole. All: questions with all evidence. R@5: evidence conversations among the five most shown. Stale only: questions whose replaced answer is shown without the current one.",
        head: vec!["engine", "budget", "recall %", "turns %", "all %", "R@5 %", "stale only %"],
        rows: rows.iter().map(cells).collect(),
    }
}

fn recording_table(report: &QualityReport, file: &str) -> QualityTable {
    let cells = |row: &RecordingRow| {
        let mut cells = first_cells(&row.subject, row.budget_tokens);
        cells.extend([row.derivable_percent, row.needed_percent].map(share));
        cells.push(row.reread_percent.map_or(DASH.to_owned(), share));
        cells.push(group_digits(row.edits));
        (cells, is_broken(row.is_baseline, &row.run))
    };
    QualityTable {
        title: "Next steps".to_owned(),
        lead: "Derivable: identifiers of the next calls that the prompt shows. Needed: identifiers that a turn uses later, in its first prompt. Read again: edits of a file whose newest content is no longer shown.",
        head: vec!["engine", "budget", "derivable %", "needed %", "read again %", "edits"],
        rows: report.recordings.iter().filter(|row| row.file == file).map(cells).collect(),
    }
}

fn utility_table(report: &QualityReport, file: &str) -> QualityTable {
    let cells = |row: &UtilityRow| {
        let mut cells = first_cells(&row.subject, row.budget_tokens);
        cells.push(row.utility.map_or(DASH.to_owned(), |utility| format!("{utility:.2}")));
        cells.extend(
            [row.nats, row.nats_without, row.nats_with_all].map(|nats| format!("{nats:.3}")),
        );
        cells.extend([row.answers, row.tokens].map(group_digits));
        (cells, false)
    };
    QualityTable {
        title: "Context utility".to_owned(),
        lead: "Nats for each token of the recorded answers after the prompt, after nothing and after the whole history. Utility: 0 as after nothing, 1 as after the whole history.",
        head: vec!["engine", "budget", "utility", "nats", "nothing", "whole", "answers", "tokens"],
        rows: report.utility.iter().filter(|row| row.file == file).map(cells).collect(),
    }
}

fn request_table(report: &QualityReport, file: &str) -> QualityTable {
    let evidence = report.evidence.iter().filter(|row| row.file == file);
    let evidence = evidence.map(|row| (&row.subject, row.budget_tokens, row.is_baseline, &row.run));
    let recordings = report.recordings.iter().filter(|row| row.file == file);
    let recordings =
        recordings.map(|row| (&row.subject, row.budget_tokens, row.is_baseline, &row.run));
    let cells = |(subject, budget_tokens, is_baseline, run): (&String, u64, bool, &RunTotals)| {
        let mean = |tokens: u64| group_digits(tokens.div_ceil(run.requests.max(1)));
        let mut cells = first_cells(subject, budget_tokens);
        cells.push(share(run.room_percent));
        cells.push(run.stable_prefix_percent.map_or(DASH.to_owned(), share));
        cells.extend([mean(run.sent_tokens), mean(run.billed_tokens)]);
        cells.extend([run.overruns + run.violations, run.emergency_trims].map(group_digits));
        cells.push(group_digits(run.differing));
        // Baselines have no engine whose time could be measured.
        cells.push(if is_baseline { DASH.to_owned() } else { format_ms(run.p99_us) });
        (cells, is_broken(is_baseline, run))
    };
    QualityTable {
        title: "Requests".to_owned(),
        lead: "Means of a request in tokens. Billed: uncached input tokens at the cache prices. Over: requests over their budget or against another invariant. Differ: repeated requests with other bytes.",
        head: vec![
            "engine", "budget", "room %", "prefix %", "sent", "billed", "over", "trims", "differ",
            "p99 ms",
        ],
        rows: evidence.chain(recordings).map(cells).collect(),
    }
}

fn rule_table(report: &QualityReport) -> QualityTable {
    let cells = |row: &RuleRow| {
        let of =
            |part: u64, whole: u64| format!("{} of {}", group_digits(part), group_digits(whole));
        let cells = vec![
            one_line(&row.subject),
            of(row.applied, row.sessions * row.compactions),
            of(row.sessions_kept, row.sessions),
            of(row.rules_kept, row.rules),
            of(row.stale, row.replaced),
            of(row.stale_only, row.replaced),
        ];
        // A replaced rule that is still shown misleads the model.
        (cells, row.stale > 0)
    };
    QualityTable {
        title: "Rules over five compactions · generated sessions".to_owned(),
        lead: "Sessions that show every active rule, active rules shown, replaced rules still shown, and those of them without the rule that replaced them.",
        head: vec!["engine", "compactions", "sessions", "rules", "stale", "stale only"],
        rows: report.rules.iter().map(cells).collect(),
    }
}

fn first_cells(subject: &str, budget_tokens: u64) -> Vec<String> {
    vec![one_line(subject), group_digits(budget_tokens)]
}

/// Only engines have to keep their budget.
fn is_broken(is_baseline: bool, run: &RunTotals) -> bool {
    !is_baseline && run.overruns + run.violations > 0
}

fn share(percent: f64) -> String {
    format!("{percent:.1}")
}
