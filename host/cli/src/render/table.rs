//! A report as text for a terminal. No fact is cut: what does not fit is wrapped.

use ctxhost_engine::with_version;
use ctxhost_runtime::replay::report::{CompactionRow, Report, Run, TurnRow};

use super::grid::{Column, Grid};
use super::paint::{Style, Tone};
use super::phrase::{clean, counted, grouped, layers, milliseconds, percent};
use super::survival;

#[cfg(test)]
mod tests;

/// What stands where a layer did nothing.
const NOTHING: &str = "–";

/// The whole report: of one run every turn, of several runs one line each.
pub(crate) fn render(report: &Report, style: Style) -> String {
    let mut parts = vec![head(report, style)];
    match report.runs.as_slice() {
        [run] => parts.extend(one_run(run, style)),
        runs => parts.extend(side_by_side(runs, style)),
    }
    parts.join("\n")
}

fn head(report: &Report, style: Style) -> String {
    let (session, window) = (&report.session, &report.window);
    let mut facts = vec![
        style.paint(Tone::Strong, &clean(&session.name)),
        clean(&session.format),
        match session.entries {
            1 => "1 entry".into(),
            entries => format!("{} entries", grouped(entries)),
        },
        counted(session.turns, "turn"),
        counted(session.requests, "request"),
    ];
    facts.extend((!session.model.is_empty()).then(|| clean(&session.model)));
    let mut text = format!(
        "{}\nwindow {} ({}) · reserve {} · budget {} tokens\n",
        facts.join(" · "),
        grouped(window.window_tokens),
        clean(&window.source),
        grouped(window.reserve_tokens),
        grouped(window.budget_tokens),
    );
    for problem in &session.problems {
        let (name, message) = (clean(&session.name), clean(&problem.message));
        let line = format!("{name}:{}: {message}", problem.line);
        text += &format!("{}\n", style.paint(Tone::Warning, &line));
    }
    text
}

fn one_run(run: &Run, style: Style) -> Vec<String> {
    let mut parts = vec![format!("engine {}\n", engine(run)), turns(run, style)];
    if !run.compactions.is_empty() {
        parts.push(compactions(&run.compactions, style));
    }
    parts.push(totals(run, style));
    parts
}

fn side_by_side(runs: &[Run], style: Style) -> Vec<String> {
    let mut layer_names: Vec<&String> =
        runs.iter().flat_map(|run| run.totals.layers.keys()).collect();
    layer_names.sort();
    layer_names.dedup();
    let mut columns = vec![Column::left("engine")];
    columns.extend(["peak", "of budget", "compactions", "rejected"].map(Column::right));
    columns.extend(layer_names.iter().map(|name| Column::right(&clean(name))));
    columns.extend(["left out", "fallbacks", "repairs", "violations"].map(Column::right));
    columns.extend(["tokens sent", "stable prefix", "identifiers kept"].map(Column::right));
    columns.extend(["p50 ms", "p99 ms"].map(Column::right));
    let mut grid = Grid::new(columns);
    for run in runs {
        let totals = &run.totals;
        let mut cells = vec![clean(&run.engine.id), grouped(totals.peak_tokens)];
        cells.push(percent(totals.peak_percent));
        cells.extend([totals.compactions, totals.rejected].map(grouped));
        let touched = |name: &&String| totals.layers.get(*name).copied().unwrap_or(0);
        cells.extend(layer_names.iter().map(|name| grouped(touched(name))));
        let left_out = run.dropped.iter().filter(|row| row.after_tokens == 0).count() as u64;
        cells.extend([left_out, totals.fallbacks, totals.repairs, totals.violations].map(grouped));
        cells.extend([grouped(totals.sent_tokens), percent(totals.stable_prefix_percent)]);
        cells.push(totals.identifiers_kept_percent.map_or(NOTHING.into(), percent));
        cells.extend([totals.engine_p50_us, totals.engine_p99_us].map(milliseconds));
        grid.row(cells, tone(totals.violations, totals.fallbacks + totals.repairs));
    }
    let mut parts = vec![grid.render_or_turn(style)];
    parts.extend(runs.iter().map(|run| below_floor(run, style)));
    parts.extend(runs.iter().map(|run| fallbacks(run, style)));
    parts.retain(|part| !part.is_empty());
    parts.extend(runs.iter().filter_map(|run| quarantine(run, style)));
    parts.push(verdict(runs, style));
    parts
}

fn turns(run: &Run, style: Style) -> String {
    let is_troubled = run.turns.iter().any(|turn| !troubles(turn).is_empty());
    let mut columns = ["turn", "requests", "peak", "of budget"].map(Column::right).to_vec();
    columns.push(Column::left("layers"));
    columns.push(Column::right("compactions"));
    columns.push(Column::left("shaped by"));
    columns.push(Column::right("engine ms"));
    columns.extend(is_troubled.then(|| Column::left("trouble")));
    columns.push(Column::left("prompt").wrapping());
    let mut grid = Grid::new(columns);
    for turn in &run.turns {
        let mut cells = [turn.turn, turn.requests, turn.peak_tokens].map(grouped).to_vec();
        cells.push(percent(turn.peak_percent));
        cells.push(or_nothing(layers(&turn.layers)));
        cells.push(if turn.compactions == 0 { NOTHING.into() } else { grouped(turn.compactions) });
        cells.push(or_nothing(clean(&turn.shaped_by.join(", "))));
        cells.push(milliseconds(turn.engine_us));
        cells.extend(is_troubled.then(|| or_nothing(troubles(turn))));
        cells.push(clean(&turn.prompt));
        grid.row(cells, tone(turn.violations, turn.fallbacks + turn.repairs));
    }
    grid.render(style)
}

fn compactions(rows: &[CompactionRow], style: Style) -> String {
    let mut columns = ["turn", "request"].map(Column::right).to_vec();
    columns.push(Column::left("trigger"));
    columns.push(Column::right("before → after"));
    columns.extend(["room used", "folded", "survival"].map(Column::right));
    columns.extend([Column::left("engine"), Column::right("engine ms")]);
    columns.extend([Column::left("result"), Column::left("reason").wrapping()]);
    let mut grid = Grid::new(columns);
    for row in rows {
        let mut cells = [row.turn, row.request].map(grouped).to_vec();
        cells.push(clean(&row.trigger));
        cells.push(format!("{} → {}", grouped(row.before_tokens), grouped(row.after_tokens)));
        cells.push(percent(row.room_used_percent));
        cells.push(grouped(row.folded_entries));
        cells.push(row.survival.as_ref().map_or(NOTHING.into(), survival::mean));
        cells.push(clean(&row.engine));
        cells.push(milliseconds(row.engine_us));
        cells.push(if row.applied { "applied".into() } else { "rejected".into() });
        cells.push(or_nothing(clean(&row.reason)));
        let is_good = row.applied && !row.is_below_floor;
        grid.row(cells, if is_good { Tone::Plain } else { Tone::Warning });
    }
    grid.render(style)
}

fn totals(run: &Run, style: Style) -> String {
    let totals = &run.totals;
    let mut text = String::new();
    text += &format!(
        "peak {} tokens, {} of the budget · {} · {} rejected · {} · {} · {}\n",
        grouped(totals.peak_tokens),
        percent(totals.peak_percent),
        counted(totals.compactions, "compaction"),
        grouped(totals.rejected),
        counted(totals.fallbacks, "fallback"),
        counted(totals.repairs, "repair"),
        counted(totals.violations, "violation"),
    );
    text += &format!(
        "sent {} tokens in {} · stable prefix {} · engine {} ms, p50 {}, p99 {}\n",
        grouped(totals.sent_tokens),
        counted(totals.requests, "request"),
        percent(totals.stable_prefix_percent),
        milliseconds(totals.engine_us),
        milliseconds(totals.engine_p50_us),
        milliseconds(totals.engine_p99_us),
    );
    if let Some(share) = totals.identifiers_kept_percent {
        let (kept, needed) = (totals.identifiers_kept, totals.identifiers_needed);
        let (share, kept, needed) = (percent(share), grouped(kept), grouped(needed));
        text += &format!("identifiers kept {share}, {kept} of {needed} that came up again\n");
    }
    if !totals.layers.is_empty() {
        text += &format!("entries touched: {}\n", layers(&totals.layers));
    }
    text += &below_floor(run, style);
    text += &fallbacks(run, style);
    text += &quarantine(run, style).unwrap_or_default();
    text + &verdict(std::slice::from_ref(run), style)
}

/// Compactions that left room unused.
fn below_floor(run: &Run, style: Style) -> String {
    let number = run.totals.below_floor;
    if number == 0 {
        return String::new();
    }
    let line = format!(
        "{}: {} left less in use than the floor although there was more to keep (law.room_floor_share)",
        clean(&run.engine.id),
        counted(number, "compaction"),
    );
    format!("{}\n", style.paint(Tone::Warning, &line))
}

/// Why another engine shaped requests, one line for each reason.
fn fallbacks(run: &Run, style: Style) -> String {
    let line = |(why, requests): (&String, &u64)| {
        let line = format!("fallback in {}: {}", counted(*requests, "request"), clean(why));
        format!("{}\n", style.paint(Tone::Warning, &line))
    };
    run.fallback_reasons.iter().map(line).collect()
}

fn quarantine(run: &Run, style: Style) -> Option<String> {
    let reason = &run.totals.quarantine;
    let line = format!("{} is in quarantine: {}", clean(&run.engine.id), clean(reason));
    (!reason.is_empty()).then(|| format!("{}\n", style.paint(Tone::Warning, &line)))
}

fn verdict(runs: &[Run], style: Style) -> String {
    let violations: u64 = runs.iter().map(|run| run.totals.violations).sum();
    let requests: u64 = runs.iter().map(|run| run.totals.requests).sum();
    let (tone, line) = match violations {
        0 => (Tone::Good, format!("no law was broken in {}", counted(requests, "request"))),
        _ => (
            Tone::Bad,
            format!(
                "{} of the law in {}; this is a defect of ctxhost, please report it",
                counted(violations, "violation"),
                counted(requests, "request"),
            ),
        ),
    };
    format!("{}\n", style.paint(tone, &line))
}

fn engine(run: &Run) -> String {
    let engine = &run.engine;
    // One that was never loaded has not told its version.
    let name = with_version(&clean(&engine.id), &clean(&engine.version));
    format!("{name} ({})", clean(&engine.source))
}

/// What went wrong in a turn; empty where nothing did.
fn troubles(turn: &TurnRow) -> String {
    let kinds =
        [(turn.violations, "violation"), (turn.fallbacks, "fallback"), (turn.repairs, "repair")];
    let seen = kinds.iter().filter(|(number, _)| *number > 0);
    seen.map(|(number, word)| counted(*number, word)).collect::<Vec<_>>().join(" · ")
}

fn tone(violations: u64, lesser_troubles: u64) -> Tone {
    match (violations, lesser_troubles) {
        (0, 0) => Tone::Plain,
        (0, _) => Tone::Warning,
        _ => Tone::Bad,
    }
}

fn or_nothing(text: String) -> String {
    if text.is_empty() { NOTHING.into() } else { text }
}
