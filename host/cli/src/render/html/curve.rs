//! The occupancy chart: one line for each engine, and the budget.
//!
//! Positions are percentages of the plot, so that the chart scales with the page while line widths
//! and labels keep their size. Only the curves are in a stretched inner SVG.

use ctxhost_agent::replay::report::{CurvePoint, EngineRun, ReplayReport};

use super::super::format::{format_count, format_percent, group_digits, one_line};
use super::markup::HtmlWriter;

/// Space above the highest value, as a factor.
const HEADROOM: f64 = 1.08;

/// Approximate number of steps on the token axis.
const TICKS: f64 = 5.0;

/// Approximate number of labels on the request axis.
const REQUEST_LABELS: u64 = 6;

/// Maps values to positions in the plot.
struct CurveScale {
    requests: u64,
    top_tokens: f64,
}

impl CurveScale {
    fn from_report(report: &ReplayReport) -> CurveScale {
        let points = || report.runs.iter().flat_map(|run| &run.curve);
        let peak_tokens = points().map(|point| point.tokens).max().unwrap_or(0);
        let top_tokens = peak_tokens.max(report.window.budget_tokens).max(1) as f64 * HEADROOM;
        let requests = points().map(|point| point.request).max().unwrap_or(1);
        CurveScale { requests, top_tokens }
    }

    /// Percent from the left.
    fn x(&self, request: u64) -> f64 {
        let steps = self.requests.saturating_sub(1).max(1) as f64;
        request.saturating_sub(1) as f64 / steps * 100.0
    }

    /// Percent from the top.
    fn y(&self, tokens: f64) -> f64 {
        100.0 - tokens / self.top_tokens * 100.0
    }

    /// Distance of two grid lines: 1, 2 or 5 times a power of ten.
    fn step(&self) -> f64 {
        let wanted = self.top_tokens / TICKS;
        let power = 10_f64.powf(wanted.log10().floor());
        // The usual 1-2-5 steps; thresholds are near the geometric means of neighbours.
        let step = match wanted / power {
            ..1.5 => power,
            ..3.5 => 2.0 * power,
            ..7.5 => 5.0 * power,
            _ => 10.0 * power,
        };
        step.max(1.0)
    }
}

/// The section with the chart, its legend and its text alternative.
pub(super) fn section(page: &mut HtmlWriter, report: &ReplayReport) {
    if report.runs.iter().all(|run| run.curve.is_empty()) {
        return;
    }
    let scale = CurveScale::from_report(report);
    page.raw("<section aria-labelledby=\"occupancy\">\n<h2 id=\"occupancy\">Occupancy</h2>\n")
        .raw("<p class=\"lead\">Size of each request, in tokens. ")
        .raw("A mark shows where a compaction was applied.</p>\n<figure>\n");
    legend(page, report);
    page.raw("<div class=\"plot\"");
    points_for_script(page, report);
    page.raw(">\n<svg role=\"img\" aria-label=\"");
    page.text(description(report)).raw("\">\n");
    axes(page, &scale);
    lines(page, report, &scale);
    budget(page, report, &scale);
    marks(page, report, &scale);
    page.raw("<line class=\"cursor\" y1=\"0\" y2=\"100%\" hidden></line>\n</svg>\n</div>\n")
        .raw("<figcaption class=\"axis\">request</figcaption>\n")
        .raw("<p class=\"readout\" aria-live=\"off\" hidden></p>\n</figure>\n</section>\n");
}

fn legend(page: &mut HtmlWriter, report: &ReplayReport) {
    page.raw("<ul class=\"legend\" aria-label=\"Legend\">\n");
    for (index, run) in report.runs.iter().enumerate() {
        page.raw("<li class=\"").raw(run_class(index)).raw("\"><span class=\"swatch\"></span>");
        page.text(one_line(&run.engine.id)).raw("</li>\n");
    }
    page.raw("<li><span class=\"swatch dashed\"></span>budget</li>\n")
        .raw("<li><span class=\"swatch dot\"></span>compaction</li>\n</ul>\n");
}

fn axes(page: &mut HtmlWriter, scale: &CurveScale) {
    page.raw("<g class=\"grid\">\n");
    let mut tokens = 0.0;
    while tokens <= scale.top_tokens {
        let y = scale.y(tokens);
        page.raw("<line x1=\"0\" x2=\"100%\" y1=\"")
            .text(css_percent(y))
            .raw("\" y2=\"")
            .text(css_percent(y));
        page.raw("\"/><text x=\"0\" dx=\"-10\" dy=\"4\" text-anchor=\"end\" y=\"")
            .text(css_percent(y));
        page.raw("\">").text(short(tokens)).raw("</text>\n");
        tokens += scale.step();
    }
    let every = (scale.requests / REQUEST_LABELS).max(1);
    for request in (1..=scale.requests).filter(|request| is_named(*request, every, scale.requests))
    {
        page.raw("<text y=\"100%\" dy=\"22\" text-anchor=\"middle\" x=\"");
        page.text(css_percent(scale.x(request)))
            .raw("\">")
            .text(group_digits(request))
            .raw("</text>\n");
    }
    page.raw("</g>\n");
}

/// The first, the last, and round numbers that do not overlap the last.
fn is_named(request: u64, every: u64, last: u64) -> bool {
    let is_round = request.is_multiple_of(round_step(every)) && last - request > every / 2;
    request == 1 || request == last || is_round
}

fn round_step(step: u64) -> u64 {
    let power = 10_u64.pow(step.max(1).ilog10());
    step.div_ceil(power) * power
}

fn lines(page: &mut HtmlWriter, report: &ReplayReport, scale: &CurveScale) {
    // Stretched to the plot, so that points can be percentages; text would be distorted and is
    // outside of it.
    page.raw("<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\">\n");
    // Areas of several runs would cover each other.
    let is_alone = report.runs.len() == 1;
    for (index, run) in report.runs.iter().enumerate() {
        if is_alone {
            page.raw("<polygon class=\"area ").raw(run_class(index)).raw("\" points=\"0,100 ");
            coordinates(page, &run.curve, scale);
            page.raw("100,100\"/>\n");
        }
        page.raw("<polyline class=\"line ").raw(run_class(index)).raw("\" points=\"");
        coordinates(page, &run.curve, scale);
        page.raw("\"/>\n");
    }
    page.raw("</svg>\n");
}

fn coordinates(page: &mut HtmlWriter, curve: &[CurvePoint], scale: &CurveScale) {
    for point in curve {
        page.text(format_args!(
            "{:.3},{:.3} ",
            scale.x(point.request),
            scale.y(point.tokens as f64)
        ));
    }
}

fn budget(page: &mut HtmlWriter, report: &ReplayReport, scale: &CurveScale) {
    let tokens = report.window.budget_tokens;
    let y = css_percent(scale.y(tokens as f64));
    page.raw("<g class=\"budget\"><line x1=\"0\" x2=\"100%\" y1=\"").text(&y);
    page.raw("\" y2=\"").text(&y).raw("\"/><text x=\"100%\" dy=\"-7\" text-anchor=\"end\" y=\"");
    page.text(&y).raw("\">budget ").text(group_digits(tokens)).raw("</text></g>\n");
}

fn marks(page: &mut HtmlWriter, report: &ReplayReport, scale: &CurveScale) {
    for (index, run) in report.runs.iter().enumerate() {
        for point in run.curve.iter().filter(|point| point.compacted) {
            page.raw("<circle class=\"mark ").raw(run_class(index)).raw("\" r=\"4\" cx=\"");
            page.text(css_percent(scale.x(point.request))).raw("\" cy=\"");
            page.text(css_percent(scale.y(point.tokens as f64))).raw("\"><title>");
            page.text(tooltip(run, point)).raw("</title></circle>\n");
        }
    }
}

fn tooltip(run: &EngineRun, point: &CurvePoint) -> String {
    let is_this = |row: &&ctxhost_agent::replay::report::CompactionRow| {
        row.applied && row.request == point.request
    };
    let place =
        format!("request {}, turn {}", group_digits(point.request), group_digits(point.turn));
    match run.compactions.iter().find(is_this) {
        Some(row) => format!(
            "{}: {} compaction, {} → {} tokens\n{place}",
            one_line(&row.engine),
            one_line(&row.trigger),
            group_digits(row.before_tokens),
            group_digits(row.after_tokens),
        ),
        None => format!("{}: compaction\n{place}", one_line(&run.engine.id)),
    }
}

/// The points for the pointer line of the script: `id tokens,tokens,…;id …`.
fn points_for_script(page: &mut HtmlWriter, report: &ReplayReport) {
    for (index, run) in report.runs.iter().enumerate() {
        // In an attribute instead of a script, so that the page needs no inline data script.
        page.raw(if index == 0 { " data-curves=\"" } else { ";" });
        page.text(one_line(&run.engine.id).replace([';', ' '], "_")).raw(" ");
        for (index, point) in run.curve.iter().enumerate() {
            page.raw(if index == 0 { "" } else { "," }).text(point.tokens);
        }
    }
    page.raw("\"");
}

/// The text alternative of the chart.
fn description(report: &ReplayReport) -> String {
    let of_run = |run: &EngineRun| {
        format!(
            "{} peaks at {} tokens, {} of the budget, with {}",
            one_line(&run.engine.id),
            group_digits(run.totals.peak_tokens),
            format_percent(run.totals.peak_percent),
            format_count(run.totals.compactions, "compaction"),
        )
    };
    let runs: Vec<_> = report.runs.iter().map(of_run).collect();
    format!("Tokens in each request against the budget. {}.", runs.join("; "))
}

/// The CSS class that colours a run. After six runs the colours repeat, dashed.
pub(super) fn run_class(index: usize) -> &'static str {
    const HUES: [&str; 12] = [
        "h0", "h1", "h2", "h3", "h4", "h5", "h0 again", "h1 again", "h2 again", "h3 again",
        "h4 again", "h5 again",
    ];
    HUES.get(index % HUES.len()).copied().unwrap_or("h0")
}

pub(super) fn css_percent(percent: f64) -> String {
    format!("{percent:.3}%")
}

/// `15k`, `1.5M`: short axis labels.
pub(super) fn short(tokens: f64) -> String {
    match tokens {
        ..1_000.0 => format!("{tokens}"),
        ..1_000_000.0 => format!("{}k", tokens / 1_000.0),
        _ => format!("{}M", tokens / 1_000_000.0),
    }
}
