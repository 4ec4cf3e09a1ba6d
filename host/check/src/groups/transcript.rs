//! The group `transcript`: plans keep calls and results together.
//!
//! The host would repair such plans, but then the host and not the engine chooses what the model reads.

use ctxhost_engine_api::{Compaction, Trigger};

use super::histories::{HistoryKey, budgets};
use crate::fault::{CaseOutcome, CaseStats};
use crate::harness::CaseHarness;
use crate::plan_check::check_plan;

pub(super) fn run((number, family): HistoryKey, harness: &CaseHarness<'_>) -> CaseOutcome {
    let view = harness.history(number, family).transcript();
    // Engines often have separate code for hosts with and without a model.
    let host = if number % 2 == 0 { harness.host() } else { harness.host_with_model() };
    let target = harness.open(host)?;
    target.bootstrap_and_ingest(&view)?;
    let mut checks = 1;
    for budget in budgets(&view) {
        if let Some(plan) = target.assemble(&view, budget)? {
            check_plan("assemble", &view, &plan, budget, family)?;
        }
        checks += 1;
    }
    let total = view.total_tokens();
    for (budget, trigger) in
        [(total / 2, Trigger::Threshold), (total / 4, Trigger::Overflow), (total, Trigger::Manual)]
    {
        if let Ok(Compaction::Plan(plan)) = target.compact(&view, budget, trigger)? {
            check_plan("compact", &view, &plan, budget, family)?;
        }
        checks += 1;
    }
    Ok(CaseStats::with_checks(checks))
}
