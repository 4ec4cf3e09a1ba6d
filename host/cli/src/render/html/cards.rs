//! One card for each engine: what it cost and what it did, in sums.

use ctxhost_runtime::replay::report::{Report, Run};

use super::super::phrase::{clean, grouped, layers, milliseconds, percent};
use super::curve::hue;
use super::markup::Markup;

/// The section with the cards.
pub(super) fn section(page: &mut Markup, report: &Report) {
    page.raw("<section aria-labelledby=\"engines\">\n<h2 id=\"engines\">Engines</h2>\n")
        .raw("<div class=\"cards\">\n");
    for (index, run) in report.runs.iter().enumerate() {
        card(page, index, run);
    }
    page.raw("</div>\n</section>\n");
}

fn card(page: &mut Markup, index: usize, run: &Run) {
    let (engine, totals) = (&run.engine, &run.totals);
    page.raw("<article class=\"card ")
        .raw(hue(index))
        .raw("\">\n<h3><span class=\"swatch\"></span>");
    page.text(clean(&engine.id)).raw(" <small>").text(clean(&engine.version));
    page.raw(" · ").text(clean(&engine.source)).raw("</small></h3>\n");
    page.raw("<p class=\"peak\"><strong>").text(percent(totals.peak_percent));
    page.raw("</strong> of the budget at its peak</p>\n<div class=\"bar");
    page.raw(if totals.peak_percent > 100.0 { " over" } else { "" });
    page.raw("\" aria-hidden=\"true\"><span style=\"width:");
    page.text(format_args!("{:.1}", totals.peak_percent.clamp(0.0, 100.0)))
        .raw("%\"></span></div>\n<dl>\n");
    figure(page, "Largest request", &grouped(totals.peak_tokens), "");
    figure(page, "Tokens sent", &grouped(totals.sent_tokens), "");
    figure(page, "Stable prefix", &percent(totals.stable_prefix_percent), "");
    figure(page, "Identifiers kept", &identifiers(run), "");
    figure(page, "Compactions", &compactions(run), "");
    figure(page, "Shortened · left out", &dropped(run), "");
    figure(page, "Layers", &or_none(layers(&totals.layers)), "");
    figure(page, "Fallbacks", &grouped(totals.fallbacks), tone(totals.fallbacks, "warn"));
    figure(page, "Repairs", &grouped(totals.repairs), tone(totals.repairs, "warn"));
    figure(page, "Violations", &grouped(totals.violations), tone(totals.violations, "bad"));
    let times = [totals.engine_p50_us, totals.engine_p99_us].map(milliseconds).join(" · ");
    figure(page, "Engine p50 · p99, ms", &times, "");
    page.raw("</dl>\n</article>\n");
}

fn figure(page: &mut Markup, name: &'static str, value: &str, tone: &'static str) {
    page.raw("<div class=\"").raw(tone).raw("\"><dt>").raw(name).raw("</dt><dd>");
    page.text(value).raw("</dd></div>\n");
}

fn tone(number: u64, tone: &'static str) -> &'static str {
    if number == 0 { "" } else { tone }
}

fn identifiers(run: &Run) -> String {
    let totals = &run.totals;
    let (kept, needed) = (grouped(totals.identifiers_kept), grouped(totals.identifiers_needed));
    let told = |share| format!("{}, {kept} of {needed}", percent(share));
    or_none(totals.identifiers_kept_percent.map(told).unwrap_or_default())
}

fn compactions(run: &Run) -> String {
    match run.totals.rejected {
        0 => grouped(run.totals.compactions),
        rejected => format!("{}, {} rejected", grouped(run.totals.compactions), grouped(rejected)),
    }
}

fn dropped(run: &Run) -> String {
    let left_out = run.dropped.iter().filter(|row| row.after_tokens == 0).count();
    let shortened = run.dropped.len() - left_out;
    format!("{} · {}", grouped(shortened as u64), grouped(left_out as u64))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "–".into() } else { text }
}
