//! `ctxhost slot status`: shares, guards and figures.

use std::time::Duration;

use crate::duration::format_duration;
use crate::engines::{
    EffectiveEngine, chain_unavailable_reason, duplicate_notes, ended_quarantines,
};
use crate::error::CliError;
use crate::output::Output;
use crate::render::format::DASH;
use crate::render::grid::{Grid, GridColumn};
use crate::render::style::Tone;
use ctxhost_agent::canary::guard::{CanaryGuard, GuardVerdict};
use ctxhost_agent::canary::metrics::{MetricName, MetricTotals};
use ctxhost_agent::canary::{Canary, CanaryEnd, format_metric};
use ctxhost_config::Config;
use ctxhost_engine::split_ids;

use super::{CONTEXT_ENGINE, SlotConfig, is_same_chain};

/// Metrics that are always shown.
const DEFAULT_METRICS: [&str; 6] =
    ["turns", "requests", "violations", "fallbacks", "retention", "p99_ms"];

/// Shows the state of the slot.
pub(super) fn show(slot: &SlotConfig, output: &mut Output) -> Result<(), CliError> {
    let state = slot.home.read()?;
    let serving = slot.effective_engine();
    let Some(canary) = state.canary else {
        output.print(&format!("{CONTEXT_ENGINE}  {} 100%\n", serving.active()))?;
        note_engines(slot, &serving, &slot.engine(), output);
        if let Some(ended) = &state.ended {
            output.note(&describe_end(ended));
        }
        return Ok(());
    };
    // Happens if someone edits the config by hand while the canary runs.
    if is_same_chain(&canary.engine, &slot.engine()) {
        output.print(&format!("{CONTEXT_ENGINE}  {} 100%\n", serving.active()))?;
        note_engines(slot, &serving, &slot.engine(), output);
        output.note(&format!(
            "the config already names the canary {}; end it with `ctxhost slot promote` or \
             `ctxhost slot rollback`",
            canary.engine
        ));
        return Ok(());
    }
    show_both(slot, &canary, &serving, output)
}

/// Notes why the engine differs from the configured one, which quarantines of the chain have ended, and which of its
/// engines have several libraries.
fn note_engines(slot: &SlotConfig, serving: &EffectiveEngine, chain: &str, output: &mut Output) {
    serving.note_reason(output);
    let notes = ended_quarantines(&slot.config, chain).into_iter();
    let duplicates = duplicate_notes(&slot.config, Some(&split_ids(chain)));
    notes.chain(duplicates).for_each(|note| output.note(&note));
}

fn show_both(
    slot: &SlotConfig,
    canary: &Canary,
    serving: &EffectiveEngine,
    output: &mut Output,
) -> Result<(), CliError> {
    // Hosts record figures under the configured name.
    let configured = slot.engine();
    let of_canary = slot.home.read_metrics(&canary.engine, &canary.run);
    let of_slot = slot.home.read_metrics(&configured, &canary.run);
    // The same threshold as the hosts use, so that this table and an automatic rollback agree.
    let least_requests = slot.config.swap.guard_requests;
    let word = describe_guards(canary, &of_canary, least_requests);
    output.print(&format!(
        "{CONTEXT_ENGINE}  {} {}  {} {} (canary, {})  {word}\n",
        serving.active(),
        canary.share.complement(),
        canary.engine,
        canary.share,
        time_left(canary, slot.now_ms),
    ))?;
    let names = ["figure", &canary.engine, &configured, "guard"].map(str::to_owned);
    let columns = names.iter().enumerate().map(|(n, name)| match n {
        1 | 2 => GridColumn::right(name),
        _ => GridColumn::left(name),
    });
    let mut grid = Grid::new(columns.collect());
    for row in rows(canary, [&of_canary, &of_slot], &slot.config) {
        grid.row(row.cells, row.tone);
    }
    output.print(&grid.render(output.style()))?;
    note_engines(slot, serving, &format!("{configured}+{}", canary.engine), output);
    if let Some(reason) = chain_unavailable_reason(&slot.config, &canary.engine) {
        output.note(&format!("canary {:?} is unavailable: {reason}", canary.engine));
    }
    Ok(())
}

/// The guards together: one that is broken decides, then one that is undecided.
fn describe_guards(canary: &Canary, figures: &MetricTotals, least_requests: u64) -> &'static str {
    let verdicts = || canary.guards.iter().map(|guard| guard.check(figures, least_requests));
    if canary.guards.is_empty() {
        "no guards"
    } else if canary.broken_guard(figures, least_requests).is_some() {
        "guards broken"
    } else if verdicts().any(|verdict| matches!(verdict, GuardVerdict::Undecided)) {
        "guards undecided"
    } else {
        "guards ok"
    }
}

struct MetricRow {
    cells: Vec<String>,
    tone: Tone,
}

/// A row for each metric that a guard names or that is always shown.
fn rows(canary: &Canary, figures: [&MetricTotals; 2], config: &Config) -> Vec<MetricRow> {
    let always = DEFAULT_METRICS.iter().filter_map(|name| name.parse().ok());
    let mut metrics: Vec<MetricName> = always.collect();
    for guard in &canary.guards {
        if !metrics.contains(&guard.metric()) {
            metrics.push(guard.metric());
        }
    }
    let row = |metric: MetricName| {
        let [of_canary, of_slot] = figures.map(|figures| metric_cell(figures, metric));
        let guards = canary.guards.iter().filter(|guard| guard.metric() == metric);
        let judgements =
            guards.map(|guard| judge_guard(guard, figures[0], config.swap.guard_requests));
        // A metric may have several guards, such as a lower and an upper bound.
        let (texts, broken): (Vec<String>, Vec<bool>) = judgements.unzip();
        let tone = if broken.contains(&true) { Tone::Warning } else { Tone::Plain };
        MetricRow { cells: vec![metric.to_string(), of_canary, of_slot, texts.join(", ")], tone }
    };
    metrics.into_iter().map(row).collect()
}

fn judge_guard(guard: &CanaryGuard, figures: &MetricTotals, least_requests: u64) -> (String, bool) {
    let (word, is_broken) = match guard.check(figures, least_requests) {
        GuardVerdict::Holds(_) => ("ok", false),
        GuardVerdict::Broken(_) => ("broken", true),
        GuardVerdict::Undecided => ("undecided, too few requests", false),
    };
    (format!("{guard}: {word}"), is_broken)
}

fn metric_cell(figures: &MetricTotals, metric: MetricName) -> String {
    figures.value(metric).map_or_else(|| DASH.to_owned(), format_metric)
}

fn time_left(canary: &Canary, now_ms: i64) -> String {
    match canary.remaining_ms(now_ms) {
        0 => "time is up: promote it or roll it back".to_owned(),
        left_ms => format!("{} left", format_duration(Duration::from_millis(left_ms))),
    }
}

fn describe_end(ended: &CanaryEnd) -> String {
    if ended.promoted {
        format!("the canary {} was promoted", ended.engine)
    } else {
        format!("the canary {} was rolled back: {}", ended.engine, ended.why)
    }
}
