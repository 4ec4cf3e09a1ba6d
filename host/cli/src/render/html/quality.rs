//! The page of quality figures: the verdict, a chart for each measure, and all tables.

use ctxhost_quality::report::QualityReport;

use super::super::format::one_line;
use super::super::quality::{QualityTable, checks, is_text, tables, verdict_tables};
use super::budget_chart::{BudgetChart, BudgetLine};
use super::markup::HtmlWriter;
use super::tables::{HtmlColumn, table};
use super::{begin, end};

/// One figure of a chart: file, subject, budget in tokens, percent.
type ChartFigure<'a> = (&'a str, &'a str, u64, Option<f64>);

/// The page.
pub(crate) fn quality_page(report: &QualityReport) -> String {
    let mut page = HtmlWriter::default();
    begin(&mut page, "Quality of engines", "ctxhost bench quality");
    page.raw("</header>\n");
    let is_broken = report.overruns() + report.violations() > 0;
    if let Some(checks) = checks(report) {
        page.raw(if is_broken {
            "<p class=\"verdict bad\">"
        } else {
            "<p class=\"verdict good\">"
        });
        page.text(checks).raw("</p>\n");
    }
    for verdict in verdict_tables(report) {
        section(&mut page, &verdict);
    }
    charts(&mut page, report);
    for figures in tables(report) {
        section(&mut page, &figures);
    }
    end(
        page,
        "Percentages as defined in docs/engines.md. Sizes are tokens as the host counts them.",
    )
}

fn section(page: &mut HtmlWriter, figures: &QualityTable) {
    page.raw("<section>\n<h2>").text(&figures.title).raw("</h2>\n<p class=\"lead\">");
    page.raw(figures.lead).raw("</p>\n");
    let columns: Vec<HtmlColumn> =
        figures.head.iter().map(|name| (*name, !is_text(name))).collect();
    table(page, &figures.title, &columns);
    for (cells, is_broken) in &figures.rows {
        page.raw(if *is_broken { "<tr class=\"warn\">" } else { "<tr>" });
        for (cell, (_, is_number)) in cells.iter().zip(&columns) {
            table_cell(page, cell, *is_number);
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n</section>\n");
}

fn table_cell(page: &mut HtmlWriter, cell: &str, is_number: bool) {
    page.raw(if is_number { "<td class=\"n\"" } else { "<td" });
    // For sorting: digits are grouped in the text.
    if let (true, Ok(value)) = (is_number, cell.replace(',', "").parse::<f64>()) {
        page.raw(" data-value=\"").text(value).raw("\"");
    }
    page.raw(">").text(cell).raw("</td>");
}

fn charts(page: &mut HtmlWriter, report: &QualityReport) {
    let figures = |title, lead, figures: Vec<ChartFigure<'_>>| file_charts(title, lead, &figures);
    let evidence = report.evidence.iter();
    let evidence = evidence
        .map(|row| (&*row.file, &*row.subject, row.budget_tokens, Some(row.recall_percent)));
    let mut charts = figures(
        "Evidence shown",
        "Share of the evidence of a question that the prompt shows verbatim, in percent.",
        evidence.collect(),
    );
    let derivable = report.recordings.iter();
    let derivable = derivable
        .map(|row| (&*row.file, &*row.subject, row.budget_tokens, Some(row.derivable_percent)));
    charts.extend(figures(
        "Next step derivable",
        "Share of the identifiers of the next calls that the prompt shows, in percent.",
        derivable.collect(),
    ));
    let needed = report.recordings.iter();
    let needed =
        needed.map(|row| (&*row.file, &*row.subject, row.budget_tokens, Some(row.needed_percent)));
    charts.extend(figures(
        "Identifiers of the turn",
        "Share of the identifiers that a turn uses later, in its first prompt, in percent.",
        needed.collect(),
    ));
    let utility = report.utility.iter().map(|row| {
        (&*row.file, &*row.subject, row.budget_tokens, row.utility.map(|value| value * 100.0))
    });
    charts.extend(figures(
        "Context utility",
        "How well a model predicts the recorded answers: 0 as after nothing, 100 as after the whole history.",
        utility.collect(),
    ));
    if !charts.is_empty() {
        page.raw("<section class=\"charts\">\n");
        charts.iter().for_each(|chart| chart.render(page));
        page.raw("</section>\n");
    }
}

/// One chart for each file.
fn file_charts(title: &str, lead: &'static str, figures: &[ChartFigure<'_>]) -> Vec<BudgetChart> {
    let subjects = distinct(figures.iter().map(|(_, subject, _, _)| *subject));
    let of_file = |file: &str| {
        let own = || figures.iter().filter(|(other, _, _, _)| *other == file);
        let budgets = distinct(own().map(|(_, _, budget_tokens, _)| *budget_tokens));
        let value = |subject: &str, budget_tokens: u64| {
            own().find(|figure| (figure.1, figure.2) == (subject, budget_tokens))?.3
        };
        let lines = subjects.iter().enumerate().map(|(color, subject)| BudgetLine {
            name: (*subject).to_owned(),
            color,
            percents: budgets.iter().map(|budget_tokens| value(subject, *budget_tokens)).collect(),
        });
        let lines = lines.collect();
        BudgetChart { title: format!("{title} · {}", one_line(file)), lead, budgets, lines }
    };
    distinct(figures.iter().map(|(file, _, _, _)| *file)).into_iter().map(of_file).collect()
}

/// The distinct values, in order of appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}
