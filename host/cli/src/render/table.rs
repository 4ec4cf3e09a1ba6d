//! Renders a report as terminal text. No figure is cut: on a narrow terminal tables wrap or stack.

use ctxhost_agent::replay::report::{CompactionRow, EngineRun, ReplayReport, TurnRow};
use ctxhost_engine::format_engine;

use super::fallback::fallback_reasons;
use super::format::{
    DASH, LISTED_LINES, format_count, format_excerpt, format_layers, format_ms, format_percent,
    group_digits, one_line, or_dash, unlisted_lines,
};
use super::grid::{Grid, GridColumn};
use super::retention;
use super::style::{TextStyle, Tone};
use super::verdict::{self, FAILED};

#[cfg(test)]
mod tests;

/// Renders the report: every turn of one run, or one line for each of several runs.
pub(crate) fn render(report: &ReplayReport, style: TextStyle) -> String {
    let mut parts = vec![head(report, style)];
    match report.runs.as_slice() {
        [run] => parts.extend(one_run(run, style)),
        runs => parts.extend(side_by_side(runs, style)),
    }
    parts.join("\n")
}

fn head(report: &ReplayReport, style: TextStyle) -> String {
    let (session, window) = (&report.session, &report.window);
    let mut facts = vec![
        style.paint(Tone::Strong, &one_line(&session.name)),
        one_line(&session.format),
        format_count(session.entries, "entry"),
        format_count(session.turns, "turn"),
        format_count(session.requests, "request"),
    ];
    facts.extend((!session.model.is_empty()).then(|| one_line(&session.model)));
    let mut text = format!(
        "{}\nwindow {} ({}) · reserve {} · budget {} tokens\n",
        facts.join(" · "),
        group_digits(window.window_tokens),
        one_line(&window.source),
        group_digits(window.reserve_tokens),
        group_digits(window.budget_tokens),
    );
    // At the top: unreadable lines change every figure below.
    for problem in session.problems.iter().take(LISTED_LINES) {
        let (name, message) = (one_line(&session.name), one_line(&problem.message));
        let line = format!("{name}:{}: {message}", problem.line);
        text += &format!("{}\n", style.paint(Tone::Warning, &line));
    }
    if let Some(more) = unlisted_lines(session.problems.len()) {
        text += &format!("{}\n", style.paint(Tone::Warning, &more));
    }
    text
}

fn one_run(run: &EngineRun, style: TextStyle) -> Vec<String> {
    let mut parts = vec![format!("engine {}\n", engine(run)), turns(run, style)];
    if !run.compactions.is_empty() {
        parts.push(compactions(&run.compactions, style));
    }
    parts.push(totals(run, style));
    parts
}

fn side_by_side(runs: &[EngineRun], style: TextStyle) -> Vec<String> {
    let mut layer_names: Vec<&String> =
        runs.iter().flat_map(|run| run.totals.layers.keys()).collect();
    // Sorted, so that the columns do not depend on the order of the engines.
    layer_names.sort();
    layer_names.dedup();
    let mut grid = Grid::new(comparison_columns(&layer_names));
    for run in runs {
        let troubles = run.totals.fallbacks + run.totals.repairs;
        let row_tone =
            if run.has_failed() { Tone::Bad } else { tone(run.totals.violations, troubles) };
        grid.row(comparison_cells(run, &layer_names), row_tone);
    }
    let mut parts = vec![grid.render_or_transpose(style)];
    parts.extend(runs.iter().map(|run| below_floor_line(run, style)));
    parts.extend(runs.iter().map(|run| fallback_lines(run, style)));
    parts.retain(|part| !part.is_empty());
    parts.extend(runs.iter().filter_map(|run| quarantine_line(run, style)));
    parts.push(verdict::render(runs, style));
    parts
}

fn comparison_columns(layer_names: &[&String]) -> Vec<GridColumn> {
    let count = |name: &str| GridColumn::right(name).named_if_zero();
    let mut columns = vec![GridColumn::left("engine")];
    columns.extend(["peak", "of budget", "compactions"].map(GridColumn::right));
    columns.push(count("rejected"));
    columns.extend(layer_names.iter().map(|name| count(&one_line(name))));
    columns.extend(["left out", "fallbacks", "repairs", "violations"].map(count));
    columns.extend(["tokens sent", "stable prefix"].map(GridColumn::right));
    columns.push(GridColumn::right("identifiers kept").optional());
    columns.extend(["p50 ms", "p99 ms"].map(GridColumn::right));
    columns
}

fn comparison_cells(run: &EngineRun, layer_names: &[&String]) -> Vec<String> {
    let totals = &run.totals;
    let mut cells = vec![one_line(&run.engine.id)];
    if run.has_failed() {
        // The figures are those of the fallback, which has a row of its own.
        cells.push(FAILED.to_owned());
        cells.resize(comparison_columns(layer_names).len(), DASH.to_owned());
        return cells;
    }
    cells.extend([group_digits(totals.peak_tokens), format_percent(totals.peak_percent)]);
    cells.extend([totals.compactions, totals.rejected].map(group_digits));
    let touched = |name: &&String| totals.layers.get(*name).copied().unwrap_or(0);
    cells.extend(layer_names.iter().map(|name| group_digits(touched(name))));
    let left_out = run.dropped.iter().filter(|row| row.after_tokens == 0).count() as u64;
    cells.extend([left_out, totals.fallbacks, totals.repairs, totals.violations].map(group_digits));
    cells.push(group_digits(totals.sent_tokens));
    cells.push(format_percent(totals.stable_prefix_percent));
    cells.push(totals.identifiers_kept_percent.map_or(DASH.into(), format_percent));
    cells.extend([totals.engine_p50_us, totals.engine_p99_us].map(format_ms));
    cells
}

fn turns(run: &EngineRun, style: TextStyle) -> String {
    // The column appears only if needed: most runs have no problems.
    let is_troubled = run.turns.iter().any(|turn| !problem_summary(turn).is_empty());
    let mut columns = ["turn", "requests", "peak", "of budget"].map(GridColumn::right).to_vec();
    columns.push(GridColumn::left("layers").optional());
    columns.push(GridColumn::right("compactions").optional());
    columns.push(GridColumn::left("shaped by"));
    columns.push(GridColumn::right("engine ms"));
    columns.extend(is_troubled.then(|| GridColumn::left("problems")));
    columns.push(GridColumn::left("prompt").wrapping());
    let mut grid = Grid::new(columns);
    for turn in &run.turns {
        let mut cells = [turn.turn, turn.requests, turn.peak_tokens].map(group_digits).to_vec();
        cells.push(format_percent(turn.peak_percent));
        cells.push(or_dash(format_layers(&turn.layers)));
        cells.push(if turn.compactions == 0 {
            DASH.into()
        } else {
            group_digits(turn.compactions)
        });
        cells.push(or_dash(one_line(&turn.shaped_by.join(", "))));
        cells.push(format_ms(turn.engine_us));
        cells.extend(is_troubled.then(|| or_dash(problem_summary(turn))));
        cells.push(format_excerpt(&turn.prompt));
        grid.row(cells, tone(turn.violations, turn.fallbacks + turn.repairs));
    }
    grid.render(style)
}

fn compactions(rows: &[CompactionRow], style: TextStyle) -> String {
    let mut columns = ["turn", "request"].map(GridColumn::right).to_vec();
    columns.push(GridColumn::left("trigger"));
    columns.push(GridColumn::right("before → after"));
    columns.extend(["room used", "folded", "retention"].map(GridColumn::right));
    columns.extend([GridColumn::left("engine"), GridColumn::right("engine ms")]);
    columns.extend([GridColumn::left("result"), GridColumn::left("reason").wrapping()]);
    let mut grid = Grid::new(columns);
    for row in rows {
        let mut cells = [row.turn, row.request].map(group_digits).to_vec();
        cells.push(one_line(&row.trigger));
        cells.push(format!(
            "{} → {}",
            group_digits(row.before_tokens),
            group_digits(row.after_tokens)
        ));
        cells.push(format_percent(row.room_used_percent));
        cells.push(group_digits(row.folded_entries));
        cells.push(row.retention.as_ref().map_or(DASH.into(), retention::format_mean));
        cells.push(one_line(&row.engine));
        cells.push(format_ms(row.engine_us));
        cells.push(if row.applied { "applied".into() } else { "rejected".into() });
        cells.push(or_dash(one_line(&row.reason)));
        // An applied compaction can still waste the window, which is worth a look.
        let is_good = row.applied && !row.is_below_floor;
        grid.row(cells, if is_good { Tone::Plain } else { Tone::Warning });
    }
    grid.render(style)
}

fn totals(run: &EngineRun, style: TextStyle) -> String {
    let totals = &run.totals;
    let mut facts = vec![
        format!("peak {} tokens", group_digits(totals.peak_tokens)),
        format!("{} of the budget", format_percent(totals.peak_percent)),
        format_count(totals.compactions, "compaction"),
    ];
    let troubles = [
        (totals.rejected, "rejected compaction"),
        (totals.fallbacks, "fallback"),
        (totals.repairs, "repair"),
        (totals.violations, "violation"),
    ];
    let troubles = troubles.into_iter().filter(|(number, _)| *number > 0);
    facts.extend(troubles.map(|(number, name)| format_count(number, name)));
    let mut text = format!("{}\n", facts.join(" · "));
    text += &format!(
        "sent {} tokens in {} · stable prefix {} · engine {} ms, p50 {}, p99 {}\n",
        group_digits(totals.sent_tokens),
        format_count(totals.requests, "request"),
        format_percent(totals.stable_prefix_percent),
        format_ms(totals.engine_us),
        format_ms(totals.engine_p50_us),
        format_ms(totals.engine_p99_us),
    );
    if let Some(share) = totals.identifiers_kept_percent {
        let (kept, needed) = (totals.identifiers_kept, totals.identifiers_needed);
        let (share, kept, needed) =
            (format_percent(share), group_digits(kept), group_digits(needed));
        text += &format!("identifiers kept {share}, {kept} of {needed} that came up again\n");
    }
    if !totals.layers.is_empty() {
        text += &format!("entries touched: {}\n", format_layers(&totals.layers));
    }
    text += &below_floor_line(run, style);
    text += &fallback_lines(run, style);
    text += &quarantine_line(run, style).unwrap_or_default();
    text + &verdict::render(std::slice::from_ref(run), style)
}

/// A line about compactions that left too much room unused.
fn below_floor_line(run: &EngineRun, style: TextStyle) -> String {
    let number = run.totals.below_floor;
    if number == 0 {
        return String::new();
    }
    let line = format!(
        "{}: {} kept less than the floor although more would fit (invariants.room_floor_share)",
        one_line(&run.engine.id),
        format_count(number, "compaction"),
    );
    format!("{}\n", style.paint(Tone::Warning, &line))
}

/// One line for each reason why another engine shaped requests.
fn fallback_lines(run: &EngineRun, style: TextStyle) -> String {
    let reasons = fallback_reasons(run).into_iter();
    reasons
        .map(|why| format!("{}\n", style.paint(Tone::Warning, &format!("fallback in {why}"))))
        .collect()
}

fn quarantine_line(run: &EngineRun, style: TextStyle) -> Option<String> {
    let reason = &run.totals.quarantine;
    let line = format!("{} is in quarantine: {}", one_line(&run.engine.id), one_line(reason));
    (!reason.is_empty()).then(|| format!("{}\n", style.paint(Tone::Warning, &line)))
}

fn engine(run: &EngineRun) -> String {
    let engine = &run.engine;
    // An engine that was never loaded has no version.
    let name = format_engine(&one_line(&engine.id), &one_line(&engine.version));
    format!("{name} ({})", one_line(&engine.source))
}

/// The problems of a turn; empty without any.
fn problem_summary(turn: &TurnRow) -> String {
    let kinds =
        [(turn.violations, "violation"), (turn.fallbacks, "fallback"), (turn.repairs, "repair")];
    let seen = kinds.iter().filter(|(number, _)| *number > 0);
    seen.map(|(number, word)| format_count(*number, word)).collect::<Vec<_>>().join(" · ")
}

fn tone(violations: u64, lesser_troubles: u64) -> Tone {
    match (violations, lesser_troubles) {
        (0, 0) => Tone::Plain,
        (0, _) => Tone::Warning,
        _ => Tone::Bad,
    }
}
