//! Renders reports as HTML pages that load nothing and work without scripts.

use ctxhost_agent::replay::report::{EngineRun, ReplayReport};

use super::fallback::fallback_reasons;
use super::format::{
    LISTED_LINES, format_count, format_percent, group_digits, one_line, unlisted_lines,
};
use super::verdict::{self, BestRuns, best_runs};
use markup::HtmlWriter;
pub(crate) use quality::quality_page;

mod budget_chart;
mod cards;
mod curve;
mod markup;
mod quality;
mod tables;
#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The page of a replay.
pub(crate) fn page(report: &ReplayReport) -> String {
    let mut page = HtmlWriter::default();
    begin(&mut page, &report.session.name, "ctxhost replay");
    comparison(&mut page, &report.runs);
    verdict(&mut page, &report.runs);
    problems(&mut page, report);
    facts(&mut page, report);
    page.raw("</header>\n");
    curve::section(&mut page, report);
    cards::section(&mut page, report);
    tables::compactions(&mut page, &report.runs);
    tables::dropped(&mut page, &report.runs);
    tables::turns(&mut page, &report.runs);
    let note = "Figures are tokens as entries are counted, without margin. The session itself is unchanged.";
    end(page, note)
}

/// The head of every page, up to its first element.
fn begin(page: &mut HtmlWriter, title: &str, kind: &'static str) {
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
        // The page loads nothing, and the browser enforces it.
        .raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")
        .raw("style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")
        .raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>")
        .text(one_line(title))
        .raw(" – ")
        .raw(kind)
        .raw("</title>\n<style>\n")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"kicker\">")
        .raw(kind)
        .raw("</p>\n<h1>")
        .text(one_line(title))
        .raw("</h1>\n");
}

/// The end of every page, with a note on its figures.
fn end(mut page: HtmlWriter, note: &'static str) -> String {
    page.raw("<footer>")
        .raw(note)
        .raw(" Made by ctxhost ")
        .text(env!("CARGO_PKG_VERSION"))
        .raw(". The page loads nothing.</footer>\n</main>\n<script>\n")
        .raw(SCRIPT)
        .raw("</script>\n</body>\n</html>\n");
    page.finish()
}

fn facts(page: &mut HtmlWriter, report: &ReplayReport) {
    let (session, window) = (&report.session, &report.window);
    page.raw("<dl class=\"facts\">\n");
    fact(page, "Format", &one_line(&session.format));
    fact(page, "Entries", &group_digits(session.entries));
    fact(page, "Turns", &group_digits(session.turns));
    fact(page, "Requests", &group_digits(session.requests));
    if !session.model.is_empty() {
        fact(page, "Model", &one_line(&session.model));
    }
    let source = one_line(&window.source);
    fact(page, "Window", &format!("{} ({source})", group_digits(window.window_tokens)));
    fact(page, "Reserve", &group_digits(window.reserve_tokens));
    fact(page, "Budget", &group_digits(window.budget_tokens));
    page.raw("</dl>\n");
}

/// Which engines were best, among those that shaped every request themselves.
fn comparison(page: &mut HtmlWriter, runs: &[EngineRun]) {
    let complete: Vec<&EngineRun> = runs.iter().filter(|run| run.totals.fallbacks == 0).collect();
    // A verdict compares.
    if complete.len() < 2 {
        return;
    }
    page.raw("<p class=\"best\">");
    if let Some(kept) = best_runs(&complete, verdict::kept_merit)
        && let Some(share) = kept.first.totals.identifiers_kept_percent
        && share > 0.0
    {
        let share = format_percent(share);
        best(page, &kept, "kept the most identifiers that came up again", &share, ", ");
    }
    if let Some(sent) = best_runs(&complete, verdict::sent_merit) {
        let tokens = group_digits(sent.first.totals.sent_tokens);
        best(page, &sent, "sent the fewest tokens", &tokens, ", ");
    }
    if let Some(prefix) = best_runs(&complete, verdict::prefix_merit) {
        let share = format_percent(prefix.first.totals.stable_prefix_percent);
        best(page, &prefix, "had the most stable prefix for the provider's cache", &share, ".");
    }
    page.raw("</p>\n");
}

/// `mask and legacy sent the fewest tokens (12,345), `; of engines that are all equal it says so.
fn best(page: &mut HtmlWriter, runs: &BestRuns<'_>, what: &str, figure: &str, end: &'static str) {
    if runs.is_tie {
        page.raw("<strong>no difference</strong> in which engine ");
    } else {
        page.raw("<strong>").text(runs.names.join(" and ")).raw("</strong> ");
    }
    page.text(what).raw(" (").text(figure).raw(")").raw(end);
}

fn fact(page: &mut HtmlWriter, name: &'static str, value: &str) {
    page.raw("<div><dt>").raw(name).raw("</dt><dd>").text(value).raw("</dd></div>\n");
}

fn verdict(page: &mut HtmlWriter, runs: &[EngineRun]) {
    let violations: u64 = runs.iter().map(|run| run.totals.violations).sum();
    let requests = format_count(runs.iter().map(|run| run.totals.requests).sum(), "request");
    match violations {
        0 => page
            .raw("<p class=\"verdict good\"><strong>0 invariant violations</strong> in ")
            .text(requests)
            .raw(".</p>\n"),
        _ => page
            .raw("<p class=\"verdict bad\" role=\"alert\"><strong>")
            .text(format_count(violations, "invariant violation"))
            .raw("</strong> in ")
            .text(requests)
            .raw(". This is a defect of ctxhost; please report it.</p>\n"),
    };
    for run in runs.iter().filter(|run| run.totals.below_floor > 0) {
        page.raw("<p class=\"verdict warn\"><strong>")
            .text(one_line(&run.engine.id))
            .raw("</strong>: ")
            .text(format_count(run.totals.below_floor, "compaction"))
            .raw(" kept less than the floor although more would fit.</p>\n");
    }
    for why in runs.iter().flat_map(fallback_reasons) {
        page.raw("<p class=\"verdict warn\"><strong>fallback</strong> in ").text(why).raw("</p>\n");
    }
    for run in runs.iter().filter(|run| !run.totals.quarantine.is_empty()) {
        page.raw("<p class=\"verdict warn\"><strong>")
            .text(one_line(&run.engine.id))
            .raw(" is in quarantine</strong>: ")
            .text(one_line(&run.totals.quarantine))
            .raw("</p>\n");
    }
}

fn problems(page: &mut HtmlWriter, report: &ReplayReport) {
    let problems = &report.session.problems;
    if problems.is_empty() {
        return;
    }
    page.raw("<details class=\"verdict warn\"><summary><strong>")
        .text(format_count(problems.len() as u64, "line"))
        .raw("</strong> of the session could not be read</summary>\n<ul>\n");
    for problem in problems.iter().take(LISTED_LINES) {
        page.raw("<li>").text(one_line(&report.session.name));
        page.raw(":").text(problem.line.to_string()).raw(": ");
        page.text(one_line(&problem.message)).raw("</li>\n");
    }
    if let Some(more) = unlisted_lines(problems.len()) {
        page.raw("<li>").text(more).raw("</li>\n");
    }
    page.raw("</ul></details>\n");
}
