//! The tables of the page: compactions, entries no longer shown in full, turns.

use ctxhost_agent::replay::report::{CompactionRow, DroppedRow, EngineRun, TurnRow};

use super::super::format::{
    format_count, format_layers, format_ms, format_percent, group_digits, one_line,
};
use super::super::retention;
use super::curve::run_class;
use super::markup::HtmlWriter;

/// Name of a column, and whether it holds numbers.
pub(super) type HtmlColumn = (&'static str, bool);

/// Every attempted compaction.
pub(super) fn compactions(page: &mut HtmlWriter, runs: &[EngineRun]) {
    let rows = runs.iter().map(|run| run.compactions.len() as u64).sum();
    let title = ("Compactions", "compactions");
    let lead = match rows {
        0 => "There was none.",
        _ => {
            "Size of the live transcript before and after, in tokens. Retained is the share of the measured content that is still in the prompt. A rejected compaction failed, made too little progress or kept too little, and changed nothing."
        }
    };
    open(page, title, lead, rows);
    if rows > 0 {
        const COLUMNS: [HtmlColumn; 12] = [
            ("Run", false),
            ("Turn", true),
            ("Request", true),
            ("Trigger", false),
            ("Engine", false),
            ("Before", true),
            ("After", true),
            ("Room used", true),
            ("Folded", true),
            ("Retained", true),
            ("ms", true),
            ("Result", false),
        ];
        table(page, "Every attempted compaction", &COLUMNS);
        for (index, run) in runs.iter().enumerate() {
            run.compactions.iter().for_each(|row| compaction(page, index, run, row));
        }
        page.raw("</tbody></table></div>\n");
    }
    page.raw("</section>\n");
}

fn compaction(page: &mut HtmlWriter, index: usize, run: &EngineRun, row: &CompactionRow) {
    let is_good = row.applied && !row.is_below_floor;
    page.raw(if is_good { "<tr>" } else { "<tr class=\"warn\">" });
    run_cell(page, index, run);
    number(page, row.turn);
    number(page, row.request);
    word(page, &row.trigger);
    word(page, &row.engine);
    number(page, row.before_tokens);
    number(page, row.after_tokens);
    page.raw("<td class=\"n\" data-value=\"").text(row.room_used_percent).raw("\">");
    page.text(format_percent(row.room_used_percent)).raw("</td>");
    number(page, row.folded_entries);
    retention_cell(page, row);
    page.raw("<td class=\"n\" data-value=\"").text(row.engine_us).raw("\">");
    page.text(format_ms(row.engine_us)).raw("</td><td class=\"wide\"><strong>");
    page.raw(if row.applied { "applied" } else { "rejected" }).raw("</strong>");
    if !row.reason.is_empty() {
        page.raw(" – ").text(one_line(&row.reason));
    }
    if !row.summary.is_empty() {
        page.raw("<details><summary>replacement</summary><pre dir=\"auto\">");
        page.text(&row.summary).raw("</pre></details>");
    }
    page.raw("</td></tr>\n");
}

fn retention_cell(page: &mut HtmlWriter, row: &CompactionRow) {
    let Some(shares) = &row.retention else {
        // -1 sorts below every measured share.
        page.raw("<td class=\"n zero\" data-value=\"-1\">–</td>");
        return;
    };
    page.raw("<td class=\"n\" data-value=\"").text(shares.mean()).raw("\" title=\"");
    page.text(retention::category_line(shares))
        .raw("\">")
        .text(retention::format_mean(shares))
        .raw("</td>");
}

/// Every entry that was shortened, cleared or left out.
pub(super) fn dropped(page: &mut HtmlWriter, runs: &[EngineRun]) {
    let rows = runs.iter().map(|run| run.dropped.len() as u64).sum();
    let title = ("No longer shown in full", "dropped");
    let lead = match rows {
        0 => "Every request showed every entry in full.".to_owned(),
        1 => "1 entry was shortened or left out; the session still has it in full.".to_owned(),
        rows => format!(
            "{} entries were shortened or left out, each listed once. The session still has them in full.",
            group_digits(rows)
        ),
    };
    open(page, title, &lead, rows);
    if rows > 0 {
        const COLUMNS: [HtmlColumn; 9] = [
            ("Run", false),
            ("Turn", true),
            ("Entry", false),
            ("Role", false),
            ("Layer", false),
            ("What was done", false),
            ("Before", true),
            ("After", true),
            ("Begins with", false),
        ];
        page.raw("<p class=\"filter\" hidden><label>Filter <input type=\"search\" ")
            .raw("placeholder=\"engine, layer, role, text …\" autocomplete=\"off\"></label> ")
            .raw("<output></output></p>\n");
        table(page, "Entries that requests no longer show in full", &COLUMNS);
        for (index, run) in runs.iter().enumerate() {
            run.dropped.iter().for_each(|row| dropped_row(page, index, run, row));
        }
        page.raw("</tbody></table></div>\n");
    }
    page.raw("</section>\n");
}

fn dropped_row(page: &mut HtmlWriter, index: usize, run: &EngineRun, row: &DroppedRow) {
    page.raw("<tr>");
    run_cell(page, index, run);
    number(page, row.turn);
    page.raw("<td><code>").text(one_line(&row.id)).raw("</code></td>");
    word(page, &row.role);
    word(page, &row.layer);
    word(page, &row.detail);
    number(page, row.before_tokens);
    number(page, row.after_tokens);
    // `dir=auto`: prompts may be in a right-to-left script.
    page.raw("<td class=\"wide quiet\" dir=\"auto\">")
        .text(one_line(&row.excerpt))
        .raw("</td></tr>\n");
}

/// Every turn, one collapsible table for each run; a single run is open.
pub(super) fn turns(page: &mut HtmlWriter, runs: &[EngineRun]) {
    let rows = runs.iter().map(|run| run.turns.len() as u64).sum();
    open(page, ("Turns", "turns"), "A user message with every request until the next.", rows);
    for (index, run) in runs.iter().enumerate() {
        // With several runs the page would be very long.
        page.raw(if runs.len() == 1 { "<details open>" } else { "<details>" });
        page.raw("<summary class=\"")
            .raw(run_class(index))
            .raw("\"><span class=\"swatch\"></span>");
        page.text(one_line(&run.engine.id)).raw(" <small>");
        page.text(format_count(run.turns.len() as u64, "turn")).raw("</small></summary>\n");
        const COLUMNS: [HtmlColumn; 12] = [
            ("Turn", true),
            ("Requests", true),
            ("Peak", true),
            ("Of budget", true),
            ("End", true),
            ("Layers", false),
            ("Compactions", true),
            ("Shaped by", false),
            ("Fallbacks", true),
            ("Repairs", true),
            ("Violations", true),
            ("Prompt", false),
        ];
        table(page, "Every turn of this run", &COLUMNS);
        run.turns.iter().for_each(|row| turn(page, row));
        page.raw("</tbody></table></div>\n</details>\n");
    }
    page.raw("</section>\n");
}

fn turn(page: &mut HtmlWriter, row: &TurnRow) {
    page.raw(match (row.violations, row.fallbacks + row.repairs) {
        (0, 0) => "<tr>",
        (0, _) => "<tr class=\"warn\">",
        _ => "<tr class=\"bad\">",
    });
    [row.turn, row.requests, row.peak_tokens].into_iter().for_each(|value| number(page, value));
    page.raw("<td class=\"n\" data-value=\"").text(row.peak_percent).raw("\">");
    page.text(format_percent(row.peak_percent)).raw("</td>");
    number(page, row.end_tokens);
    word(page, &format_layers(&row.layers));
    number(page, row.compactions);
    word(page, &row.shaped_by.join(", "));
    [row.fallbacks, row.repairs, row.violations].into_iter().for_each(|value| number(page, value));
    page.raw("<td class=\"wide quiet\" dir=\"auto\">")
        .text(one_line(&row.prompt))
        .raw("</td></tr>\n");
}

fn open(page: &mut HtmlWriter, (title, id): (&'static str, &'static str), lead: &str, rows: u64) {
    page.raw("<section aria-labelledby=\"").raw(id).raw("\">\n<h2 id=\"").raw(id).raw("\">");
    page.raw(title)
        .raw(" <small>")
        .text(group_digits(rows))
        .raw("</small></h2>\n<p class=\"lead\">");
    page.text(lead).raw("</p>\n");
}

/// The head of a table, up to its first row.
pub(super) fn table(page: &mut HtmlWriter, caption: &str, columns: &[HtmlColumn]) {
    page.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"").text(caption);
    page.raw("\"><table><caption>").text(caption).raw("</caption>\n<thead><tr>");
    for (name, is_number) in columns {
        page.raw(if *is_number { "<th scope=\"col\" class=\"n\">" } else { "<th scope=\"col\">" });
        page.raw(name).raw("</th>");
    }
    page.raw("</tr></thead>\n<tbody>\n");
}

fn run_cell(page: &mut HtmlWriter, index: usize, run: &EngineRun) {
    page.raw("<td class=\"run ").raw(run_class(index)).raw("\"><span class=\"swatch\"></span>");
    page.text(one_line(&run.engine.id)).raw("</td>");
}

fn number(page: &mut HtmlWriter, value: u64) {
    page.raw("<td class=\"n");
    page.raw(if value == 0 { " zero" } else { "" }).raw("\" data-value=\"").text(value);
    page.raw("\">").text(group_digits(value)).raw("</td>");
}

fn word(page: &mut HtmlWriter, text: &str) {
    page.raw("<td>").text(one_line(text)).raw("</td>");
}
