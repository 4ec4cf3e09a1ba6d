//! The group `restart`: ingests entries again, in the same host and after a restart.
//!
//! After a crash a host ingests everything again, with the engine's stored values or, on another machine,
//! without them.

use ctxhost_engine_api::{Plan, Transcript};

use super::histories::{self, HistoryKey};
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::history::CaseHistory;
use crate::host::FaultyHost;
use crate::plan_check::{check_plan, render_items};
use crate::provider::ProviderFamily;
use crate::session::{CheckSession, expect_ok};

/// The scenarios, in rotation over the histories.
const SCENARIOS: [(&str, RestartScenario); 3] = [
    ("ingested again", ingest_again),
    ("restarted with stored values", with_values),
    ("restarted without stored values", without_values),
];

type RestartScenario = fn(&CaseHarness<'_>, &CaseHistory, ProviderFamily) -> CaseOutcome;

pub(super) const CASES: u64 = 36;

fn scenario(case: u64) -> Option<&'static (&'static str, RestartScenario)> {
    SCENARIOS.get(usize::try_from(case.saturating_sub(1) / 4 % SCENARIOS.len() as u64).unwrap_or(0))
}

pub(super) fn name(case: u64) -> String {
    let way = scenario(case).map_or("", |(name, _)| name);
    format!("{}, {way}", histories::describe(histories::key_rotating(case)))
}

pub(super) fn run(case: u64, harness: &CaseHarness<'_>) -> CaseOutcome {
    let (number, family): HistoryKey = histories::key_rotating(case);
    let history = harness.history(number, family);
    match scenario(case) {
        Some((_, way)) => way(harness, &history, family),
        None => Ok(CaseStats::default()),
    }
}

/// A budget that everything fits, and one for half of it.
fn budgets(view: &Transcript) -> [u64; 2] {
    [view.total_tokens() * 2, view.total_tokens() / 2]
}

fn ingest_again(
    harness: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    let len = view.len() as u64;
    let mut checks = 0;
    for budget in budgets(&view) {
        let target = harness.open(harness.host())?;
        target.bootstrap_and_ingest(&view)?;
        let before = target.assemble(&view, budget)?;
        // All, the second half and the last entry: what a host repeats after a crash depends on its
        // last commit.
        for range in [0..len, len / 2..len, len.saturating_sub(1)..len] {
            target.ingest(&view, range.clone())?;
            let after = target.assemble(&view, budget)?;
            let what = format!("entries {}..{} were ingested again", range.start, range.end);
            expect_equal(&view, before.as_ref(), after.as_ref(), &what, budget)?;
            checks += 1;
        }
        target.bootstrap(&view)?;
        let after = target.assemble(&view, budget)?;
        expect_equal(&view, before.as_ref(), after.as_ref(), "the session was reopened", budget)?;
        after.map_or(Ok(()), |plan| check_plan("assemble", &view, &plan, budget, family))?;
        checks += 1;
    }
    Ok(CaseStats::with_checks(checks))
}

fn with_values(
    harness: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    for budget in budgets(&view) {
        let host = harness.host();
        let target = harness.open(host.clone())?;
        let before = live(&target, history, budget)?;
        target.dispose()?;
        let after = reopened(harness, host, &view, budget, family)?;
        expect_equal(
            &view,
            before.as_ref(),
            after.as_ref(),
            "a restart with stored values",
            budget,
        )?;
    }
    Ok(CaseStats::with_checks(2))
}

/// Without its stored values the engine may return a different plan, but a valid one.
fn without_values(
    harness: &CaseHarness<'_>,
    history: &CaseHistory,
    family: ProviderFamily,
) -> CaseOutcome {
    let view = history.transcript();
    for budget in budgets(&view) {
        let target = harness.open(harness.host())?;
        live(&target, history, budget)?;
        target.dispose()?;
        let after = reopened(harness, harness.host(), &view, budget, family)?;
        let newest = view.newest_user_message().map(|entry| entry.seq());
        let kept = |plan: &Plan| {
            let items = plan.project(&view);
            items.iter().filter_map(|item| item.entry()).any(|entry| Some(entry.seq()) == newest)
        };
        // With a smaller budget the host reinserts the message, so leaving it out is not a fault
        // here.
        if budget >= view.total_tokens() && newest.is_some() && !after.as_ref().is_some_and(kept) {
            let message = "after a restart without stored values assemble left out the newest user \
                           message, although everything fits";
            return Err(CheckFault::new("forgets", message));
        }
    }
    Ok(CaseStats::with_checks(2))
}

/// Runs a session turn by turn, as a host does.
fn live(
    target: &CheckSession,
    history: &CaseHistory,
    budget: u64,
) -> Result<Option<Plan>, CheckFault> {
    let view = history.transcript();
    target.bootstrap(&history.first(0))?;
    let mut known = 0;
    for turn in 1..=4 {
        let entries = history.len() * turn / 4;
        // Short histories have fewer entries than turns.
        if entries == known {
            continue;
        }
        let view = history.first(entries);
        target.ingest(&view, known as u64..entries as u64)?;
        target.assemble(&view, budget)?;
        expect_ok("after_turn", target.after_turn(&view, known as u64..entries as u64)?)?;
        expect_ok("commit_turn", target.commit(&view, &format!("turn-{turn}"))?)?;
        expect_ok("maintain", target.maintain(&view)?)?;
        known = entries;
    }
    target.assemble(&view, budget)
}

fn reopened(
    harness: &CaseHarness<'_>,
    host: FaultyHost,
    view: &Transcript,
    budget: u64,
    family: ProviderFamily,
) -> Result<Option<Plan>, CheckFault> {
    let target = harness.open(host)?;
    target.bootstrap_and_ingest(view)?;
    let plan = target.assemble(view, budget)?;
    if let Some(plan) = &plan {
        check_plan("assemble", view, plan, budget, family)?;
    }
    Ok(plan)
}

fn expect_equal(
    view: &Transcript,
    before: Option<&Plan>,
    after: Option<&Plan>,
    when: &str,
    budget: u64,
) -> Result<(), CheckFault> {
    let (before, after) = (render_items(view, before), render_items(view, after));
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
