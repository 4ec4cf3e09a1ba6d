//! A report as one page: no network, no other file, and whole without any script.

use ctxhost_runtime::replay::report::{Report, Run};

use super::phrase::{clean, counted, grouped};
use markup::Markup;

mod cards;
mod curve;
mod markup;
mod tables;
#[cfg(test)]
mod tests;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let mut page = Markup::default();
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
        // The page asks nobody for anything, and the browser holds it to that.
        .raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")
        .raw("style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")
        .raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>")
        .text(clean(&report.session.name))
        .raw(" – ctxhost replay</title>\n<style>\n")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n<main>\n");
    head(&mut page, report);
    verdict(&mut page, &report.runs);
    problems(&mut page, report);
    curve::section(&mut page, report);
    cards::section(&mut page, report);
    tables::compactions(&mut page, &report.runs);
    tables::dropped(&mut page, &report.runs);
    tables::turns(&mut page, &report.runs);
    page.raw("<footer>Figures are tokens as entries are counted, without margin. ")
        .raw("The session itself is unchanged. Made by ctxhost ")
        .text(env!("CARGO_PKG_VERSION"))
        .raw(", which asked nobody for anything.</footer>\n</main>\n<script>\n")
        .raw(SCRIPT)
        .raw("</script>\n</body>\n</html>\n");
    page.finish()
}

fn head(page: &mut Markup, report: &Report) {
    let (session, window) = (&report.session, &report.window);
    page.raw("<header>\n<p class=\"kicker\">ctxhost replay</p>\n<h1>")
        .text(clean(&session.name))
        .raw("</h1>\n<dl class=\"facts\">\n");
    fact(page, "Format", &clean(&session.format));
    fact(page, "Entries", &grouped(session.entries));
    fact(page, "Turns", &grouped(session.turns));
    fact(page, "Requests", &grouped(session.requests));
    if !session.model.is_empty() {
        fact(page, "Model", &clean(&session.model));
    }
    let source = clean(&window.source);
    fact(page, "Window", &format!("{} ({source})", grouped(window.window_tokens)));
    fact(page, "Reserve", &grouped(window.reserve_tokens));
    fact(page, "Budget", &grouped(window.budget_tokens));
    page.raw("</dl>\n</header>\n");
}

fn fact(page: &mut Markup, name: &'static str, value: &str) {
    page.raw("<div><dt>").raw(name).raw("</dt><dd>").text(value).raw("</dd></div>\n");
}

fn verdict(page: &mut Markup, runs: &[Run]) {
    let violations: u64 = runs.iter().map(|run| run.totals.violations).sum();
    let requests = counted(runs.iter().map(|run| run.totals.requests).sum(), "request");
    match violations {
        0 => page
            .raw("<p class=\"verdict good\"><strong>No law was broken</strong> in ")
            .text(requests)
            .raw(".</p>\n"),
        _ => page
            .raw("<p class=\"verdict bad\" role=\"alert\"><strong>")
            .text(counted(violations, "violation"))
            .raw(" of the law</strong> in ")
            .text(requests)
            .raw(". This is a defect of ctxhost; please report it.</p>\n"),
    };
    for run in runs.iter().filter(|run| run.totals.below_floor > 0) {
        page.raw("<p class=\"verdict warn\"><strong>")
            .text(clean(&run.engine.id))
            .raw("</strong>: ")
            .text(counted(run.totals.below_floor, "compaction"))
            .raw(" left less in use than the floor although there was more to keep.</p>\n");
    }
    for (why, requests) in runs.iter().flat_map(|run| &run.fallback_reasons) {
        page.raw("<p class=\"verdict warn\"><strong>fallback</strong> in ")
            .text(counted(*requests, "request"))
            .raw(": ")
            .text(clean(why))
            .raw("</p>\n");
    }
    for run in runs.iter().filter(|run| !run.totals.quarantine.is_empty()) {
        page.raw("<p class=\"verdict warn\"><strong>")
            .text(clean(&run.engine.id))
            .raw(" is in quarantine</strong>: ")
            .text(clean(&run.totals.quarantine))
            .raw("</p>\n");
    }
}

fn problems(page: &mut Markup, report: &Report) {
    let problems = &report.session.problems;
    if problems.is_empty() {
        return;
    }
    page.raw("<details class=\"verdict warn\"><summary><strong>")
        .text(counted(problems.len() as u64, "line"))
        .raw("</strong> of the session could not be taken as written</summary>\n<ul>\n");
    for problem in problems {
        page.raw("<li>").text(clean(&report.session.name));
        page.raw(":").text(problem.line.to_string()).raw(": ");
        page.text(clean(&problem.message)).raw("</li>\n");
    }
    page.raw("</ul></details>\n");
}
