//! `restart`: what an engine was told once may be told again, by the same host or after a restart.
//!
//! A host that crashed tells everything anew, with the engine's values or, on another machine, without.

use ctxhost_engine_api::{Plan, Transcript};

use super::histories::{self, HistoryKey};
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::history::CaseHistory;
use crate::host::FaultyHost;
use crate::plan_check::{check_plan, render_items};
use crate::provider::ProviderFamily;
use crate::session::{CheckSession, expect_ok};

/// What is tried on each history, in turn.
const SCENARIOS: [(&str, RestartScenario); 3] = [
    ("told again", ingest_again),
    ("restarted with its values", with_values),
    ("restarted without its values", without_values),
];

type RestartScenario = fn(&CaseHarness<'_>, &CaseHistory, ProviderFamily) -> CaseOutcome;

/// Histories, the ways in turn.
pub(super) const CASES: u64 = 36;

fn scenario(case: u64) -> Option<&'static (&'static str, RestartScenario)> {
    SCENARIOS.get(usize::try_from(case.saturating_sub(1) / 4 % SCENARIOS.len() as u64).unwrap_or(0))
}

pub(super) fn name(case: u64) -> String {
    let way = scenario(case).map_or("", |(name, _)| name);
    format!("{}, {way}", histories::describe(histories::key_rotating(case)))
}

pub(super) fn run(case: u64, bench: &CaseHarness<'_>) -> CaseOutcome {
    let (number, family): HistoryKey = histories::key_rotating(case);
    let history = bench.history(number, family);
    match scenario(case) {
        Some((_, way)) => way(bench, &history, family),
        None => Ok(CaseStats::default()),
    }
}

/// Budgets that are tried: one that everything fits, one that only a half of it does.
fn budgets(view: &Transcript) -> [u64; 2] {
    [view.total_tokens() * 2, view.total_tokens() / 2]
}

fn ingest_again(
    bench: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    let len = view.len() as u64;
    let mut checks = 0;
    for budget in budgets(&view) {
        let stage = bench.open(bench.host())?;
        stage.bootstrap_and_ingest(&view)?;
        let before = stage.assemble(&view, budget)?;
        for range in [0..len, len / 2..len, len.saturating_sub(1)..len] {
            stage.ingest(&view, range.clone())?;
            let after = stage.assemble(&view, budget)?;
            let what = format!("entries {}..{} were told again", range.start, range.end);
            alike(&view, before.as_ref(), after.as_ref(), &what, budget)?;
            checks += 1;
        }
        stage.bootstrap(&view)?;
        let after = stage.assemble(&view, budget)?;
        alike(&view, before.as_ref(), after.as_ref(), "the session was opened again", budget)?;
        after.map_or(Ok(()), |plan| check_plan("assemble", &view, &plan, budget, family))?;
        checks += 1;
    }
    Ok(CaseStats::with_checks(checks))
}

fn with_values(
    bench: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    for budget in budgets(&view) {
        let host = bench.host();
        let stage = bench.open(host.clone())?;
        let before = live(&stage, history, budget)?;
        stage.dispose()?;
        let after = reopened(bench, host, &view, budget, family)?;
        alike(&view, before.as_ref(), after.as_ref(), "a restart with its values", budget)?;
    }
    Ok(CaseStats::with_checks(2))
}

/// Without its values an engine begins anew: it may choose otherwise, and must choose soundly.
fn without_values(
    bench: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    for budget in budgets(&view) {
        let stage = bench.open(bench.host())?;
        live(&stage, history, budget)?;
        stage.dispose()?;
        let after = reopened(bench, bench.host(), &view, budget, family)?;
        let newest = view.newest_user_message().map(|entry| entry.seq());
        let kept = |plan: &Plan| {
            let items = plan.project(&view);
            items.iter().filter_map(|item| item.entry()).any(|entry| Some(entry.seq()) == newest)
        };
        if budget >= view.total_tokens() && newest.is_some() && !after.as_ref().is_some_and(kept) {
            let message = "after a restart without its values assemble left out the newest user \
                           message, although everything fits";
            return Err(CheckFault::new("forgets", message));
        }
    }
    Ok(CaseStats::with_checks(2))
}

/// A session as a host lives it: turn by turn.
fn live(
    stage: &CheckSession,
    history: &CaseHistory,
    budget: u64,
) -> Result<Option<Plan>, CheckFault> {
    let view = history.transcript();
    stage.bootstrap(&history.first(0))?;
    let mut known = 0;
    for turn in 1..=4 {
        let entries = history.len() * turn / 4;
        if entries == known {
            continue;
        }
        let view = history.first(entries);
        stage.ingest(&view, known as u64..entries as u64)?;
        stage.assemble(&view, budget)?;
        expect_ok("after_turn", stage.after_turn(&view, known as u64..entries as u64)?)?;
        expect_ok("commit_turn", stage.commit(&view, &format!("turn-{turn}"))?)?;
        expect_ok("maintain", stage.maintain(&view)?)?;
        known = entries;
    }
    stage.assemble(&view, budget)
}

fn reopened(
    bench: &CaseHarness<'_>,
    host: FaultyHost,
    view: &Transcript,
    budget: u64,
    family: ProviderFamily,
) -> Result<Option<Plan>, CheckFault> {
    let stage = bench.open(host)?;
    stage.bootstrap_and_ingest(view)?;
    let plan = stage.assemble(view, budget)?;
    if let Some(plan) = &plan {
        check_plan("assemble", view, plan, budget, family)?;
    }
    Ok(plan)
}

fn alike(
    view: &Transcript,
    before: Option<&Plan>,
    after: Option<&Plan>,
    when: &str,
    budget: u64,
) -> Result<(), CheckFault> {
    let read = |plan: Option<&Plan>| plan.map_or(Vec::new(), |plan| render_items(view, plan));
    let (before, after) = (read(before), read(after));
    if before == after {
        return Ok(());
    }
    let message = format!(
        "assemble returned {} messages before and {} after {when}, with a budget of {budget}: state was \
         lost or counted twice",
        before.len(),
        after.len()
    );
    Err(CheckFault::new("forgets", message))
}
