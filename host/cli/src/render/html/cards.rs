//! Cards with the totals of each engine.

use ctxhost_agent::replay::report::{EngineRun, ReplayReport};

use super::super::format::{
    format_layers, format_ms, format_percent, group_digits, one_line, or_dash,
};
use super::curve::run_class;
use super::markup::HtmlWriter;

/// The section with the cards.
pub(super) fn section(page: &mut HtmlWriter, report: &ReplayReport) {
    page.raw("<section aria-labelledby=\"engines\">\n<h2 id=\"engines\">Engines</h2>\n")
        .raw("<div class=\"cards\">\n");
    for (index, run) in report.runs.iter().enumerate() {
        card(page, index, run);
    }
    page.raw("</div>\n</section>\n");
}

fn card(page: &mut HtmlWriter, index: usize, run: &EngineRun) {
    let (engine, totals) = (&run.engine, &run.totals);
    page.raw("<article class=\"card ")
        .raw(run_class(index))
        .raw("\">\n<h3><span class=\"swatch\"></span>");
    page.text(one_line(&engine.id)).raw(" <small>").text(one_line(&engine.version));
    page.raw(" · ").text(one_line(&engine.source)).raw("</small></h3>\n");
    page.raw("<p class=\"peak\"><strong>").text(format_percent(totals.peak_percent));
    page.raw("</strong> of the budget at its peak</p>\n<div class=\"bar");
    page.raw(if totals.peak_percent > 100.0 { " over" } else { "" });
    page.raw("\" aria-hidden=\"true\"><span style=\"width:");
    // A bar beyond its frame would look like a rendering error; `over` colours it instead.
    page.text(format_args!("{:.1}", totals.peak_percent.clamp(0.0, 100.0)))
        .raw("%\"></span></div>\n<dl>\n");
    figure(page, "Largest request", &group_digits(totals.peak_tokens), "");
    figure(page, "Tokens sent", &group_digits(totals.sent_tokens), "");
    figure(page, "Stable prefix", &format_percent(totals.stable_prefix_percent), "");
    figure(page, "Identifiers kept", &identifiers(run), "");
    figure(page, "Compactions", &compactions(run), "");
    figure(page, "Shortened · left out", &dropped(run), "");
    figure(page, "Layers", &or_dash(format_layers(&totals.layers)), "");
    figure(page, "Fallbacks", &group_digits(totals.fallbacks), tone(totals.fallbacks, "warn"));
    figure(page, "Repairs", &group_digits(totals.repairs), tone(totals.repairs, "warn"));
    figure(page, "Violations", &group_digits(totals.violations), tone(totals.violations, "bad"));
    let times = [totals.engine_p50_us, totals.engine_p99_us].map(format_ms).join(" · ");
    figure(page, "Engine p50 · p99, ms", &times, "");
    page.raw("</dl>\n</article>\n");
}

fn figure(page: &mut HtmlWriter, name: &'static str, value: &str, tone: &'static str) {
    page.raw("<div class=\"").raw(tone).raw("\"><dt>").raw(name).raw("</dt><dd>");
    page.text(value).raw("</dd></div>\n");
}

fn tone(number: u64, tone: &'static str) -> &'static str {
    if number == 0 { "" } else { tone }
}

fn identifiers(run: &EngineRun) -> String {
    let totals = &run.totals;
    let (kept, needed) =
        (group_digits(totals.identifiers_kept), group_digits(totals.identifiers_needed));
    let describe = |share| format!("{}, {kept} of {needed}", format_percent(share));
    or_dash(totals.identifiers_kept_percent.map(describe).unwrap_or_default())
}

fn compactions(run: &EngineRun) -> String {
    match run.totals.rejected {
        0 => group_digits(run.totals.compactions),
        rejected => {
            format!("{}, {} rejected", group_digits(run.totals.compactions), group_digits(rejected))
        }
    }
}

fn dropped(run: &EngineRun) -> String {
    let left_out = run.dropped.iter().filter(|row| row.after_tokens == 0).count();
    let shortened = run.dropped.len() - left_out;
    format!("{} · {}", group_digits(shortened as u64), group_digits(left_out as u64))
}
