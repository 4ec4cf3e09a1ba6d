//! `transcript`: in whatever an engine answers, calls and results stay together.
//!
//! The law would widen the cut, so that no request fails; but then the host chose what the model sees.

use ctxhost_engine_api::{Compaction, Trigger};

use super::histories::{HistoryKey, budgets};
use crate::fault::{CaseOutcome, CaseStats};
use crate::harness::CaseHarness;
use crate::plan_check::check_plan;

pub(super) fn run((number, family): HistoryKey, bench: &CaseHarness<'_>) -> CaseOutcome {
    let view = bench.history(number, family).transcript();
    let host = if number % 2 == 0 { bench.host() } else { bench.host_with_model() };
    let stage = bench.open(host)?;
    stage.bootstrap_and_ingest(&view)?;
    let mut checks = 1;
    for budget in budgets(&view) {
        if let Some(plan) = stage.assemble(&view, budget)? {
            check_plan("assemble", &view, &plan, budget, family)?;
        }
        checks += 1;
    }
    let total = view.total_tokens();
    for (budget, trigger) in
        [(total / 2, Trigger::Threshold), (total / 4, Trigger::Overflow), (total, Trigger::Manual)]
    {
        if let Ok(Compaction::Plan(plan)) = stage.compact(&view, budget, trigger)? {
            check_plan("compact", &view, &plan, budget, family)?;
        }
        checks += 1;
    }
    Ok(CaseStats::with_checks(checks))
}
