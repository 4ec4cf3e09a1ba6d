//! A chart of a percentage over prompt budgets: one line for each engine.

use super::super::format::{group_digits, one_line};
use super::curve::{css_percent, run_class, short};
use super::markup::HtmlWriter;

/// Grid lines, in percent.
const GRID: [f64; 6] = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0];

/// Space above 100 %, so that marks are not cut.
const HEADROOM_PERCENT: f64 = 4.0;

/// A chart.
pub(super) struct BudgetChart {
    pub(super) title: String,
    pub(super) lead: &'static str,
    pub(super) budgets: Vec<u64>,
    pub(super) lines: Vec<BudgetLine>,
}

/// The line of an engine.
pub(super) struct BudgetLine {
    pub(super) name: String,
    /// Selects the colour, which is the same in all charts of a page.
    pub(super) color: usize,
    /// Its values in percent, by budget.
    pub(super) percents: Vec<Option<f64>>,
}

impl BudgetChart {
    pub(super) fn render(&self, page: &mut HtmlWriter) {
        page.raw("<figure>\n<h3>").text(&self.title).raw("</h3>\n<p class=\"lead\">");
        page.raw(self.lead).raw("</p>\n<ul class=\"legend\" aria-label=\"Legend\">\n");
        for line in &self.lines {
            page.raw("<li class=\"").raw(run_class(line.color));
            page.raw("\"><span class=\"swatch\"></span>").text(one_line(&line.name)).raw("</li>\n");
        }
        page.raw("</ul>\n<div class=\"plot\">\n<svg role=\"img\" aria-label=\"");
        page.text(self.description()).raw("\">\n");
        self.axes(page);
        self.curves(page);
        self.lines.iter().for_each(|line| self.marks(page, line));
        page.raw("</svg>\n</div>\n<figcaption class=\"axis\">budget, in tokens</figcaption>\n")
            .raw("</figure>\n");
    }

    /// Percent from the left; budgets are equally spaced, since each is usually twice the last.
    fn x(&self, at: usize) -> f64 {
        match self.budgets.len() {
            0 | 1 => 50.0,
            count => at as f64 / (count - 1) as f64 * 100.0,
        }
    }

    fn axes(&self, page: &mut HtmlWriter) {
        page.raw("<g class=\"grid\">\n");
        for percent in GRID {
            let y = css_percent(y(percent));
            page.raw("<line x1=\"0\" x2=\"100%\" y1=\"").text(&y).raw("\" y2=\"").text(&y);
            page.raw("\"/><text x=\"0\" dx=\"-10\" dy=\"4\" text-anchor=\"end\" y=\"").text(&y);
            page.raw("\">").text(percent).raw("</text>\n");
        }
        for (at, budget_tokens) in self.budgets.iter().enumerate() {
            page.raw("<text y=\"100%\" dy=\"22\" text-anchor=\"middle\" x=\"");
            page.text(css_percent(self.x(at))).raw("\">");
            page.text(short(*budget_tokens as f64)).raw("</text>\n");
        }
        page.raw("</g>\n");
    }

    fn curves(&self, page: &mut HtmlWriter) {
        // Stretched to the plot, so that points can be percentages; text would be distorted and is
        // outside of it.
        page.raw("<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\">\n");
        for line in &self.lines {
            page.raw("<polyline class=\"line ").raw(run_class(line.color)).raw("\" points=\"");
            for (at, percent) in line.points() {
                page.text(format_args!("{:.3},{:.3} ", self.x(at), y(percent)));
            }
            page.raw("\"/>\n");
        }
        page.raw("</svg>\n");
    }

    fn marks(&self, page: &mut HtmlWriter, line: &BudgetLine) {
        for (at, percent) in line.points() {
            page.raw("<circle class=\"mark ").raw(run_class(line.color)).raw("\" r=\"4\" cx=\"");
            page.text(css_percent(self.x(at))).raw("\" cy=\"").text(css_percent(y(percent)));
            page.raw("\"><title>").text(self.tooltip(line, at, percent)).raw("</title></circle>\n");
        }
    }

    fn tooltip(&self, line: &BudgetLine, at: usize, percent: f64) -> String {
        let budget_tokens = self.budgets.get(at).copied().unwrap_or(0);
        format!("{}: {percent:.1} at {} tokens", one_line(&line.name), group_digits(budget_tokens))
    }

    /// The text alternative.
    fn description(&self) -> String {
        let of_line = |line: &BudgetLine| {
            let points: Vec<String> =
                line.points().map(|(at, percent)| self.tooltip(line, at, percent)).collect();
            points.join(", ")
        };
        let lines: Vec<String> = self.lines.iter().map(of_line).collect();
        format!("{}, in percent. {}.", self.title, lines.join("; "))
    }
}

impl BudgetLine {
    fn points(&self) -> impl Iterator<Item = (usize, f64)> {
        self.percents.iter().enumerate().filter_map(|(at, percent)| Some((at, (*percent)?)))
    }
}

/// Percent from the top.
fn y(percent: f64) -> f64 {
    100.0 - percent / (100.0 + HEADROOM_PERCENT) * 100.0
}
