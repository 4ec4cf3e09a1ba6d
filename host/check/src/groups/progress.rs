//! The group `progress`: compactions shrink the transcript, and a no-op is reported as `Nothing`.
//!
//! Agents that trust a compaction that changed nothing have looped for hours. Compactions that keep less
//! than the floor although more was available are counted, not failed.

use ctxhost_engine_api::{Compaction, Plan, Transcript, Trigger};

use ctxhost_invariants::InvariantSettings;

use super::histories::HistoryKey;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::plan_check::{is_no_op, plan_tokens};
use ctxhost_invariants::FAIR_BUDGET_TOKENS;

/// The number of histories; every fourth is a long one.
pub(super) const CASES: u64 = 48;

pub(super) fn run((number, family): HistoryKey, harness: &CaseHarness<'_>) -> CaseOutcome {
    let view = harness.history(number, family).transcript();
    if view.is_empty() {
        // An empty history cannot shrink.
        return Ok(CaseStats::with_checks(1));
    }
    let host = if number % 2 == 0 { harness.host() } else { harness.host_with_model() };
    let target = harness.open(host)?;
    target.bootstrap_and_ingest(&view)?;
    let total = view.total_tokens();
    let (mut checks, mut floor_use) = (0, (0, 0));
    for (budget, trigger) in [
        (total * 2, Trigger::Threshold),
        (total, Trigger::Manual),
        (total / 2, Trigger::Threshold),
        (total / 3, Trigger::Overflow),
        (0, Trigger::Timeout),
    ] {
        // Twice: an engine that changed its state in the first call must still report a no-op in the second.
        for _ in 0..2 {
            if let Ok(Compaction::Plan(plan)) = target.compact(&view, budget, trigger)? {
                judge_compaction(&view, &plan, trigger)?;
                // The floor depends on the budget; 0 disables it.
                let floor = InvariantSettings::default().floor_tokens(budget);
                // Token counts are estimates, so plans up to an eighth below the floor still count as above it.
                if floor > 0 && total > budget {
                    let is_below = plan_tokens(&view, &plan) + floor / 8 < floor;
                    floor_use = (floor_use.0 + 1, floor_use.1 + u64::from(is_below));
                }
            }
            checks += 1;
        }
    }
    for budget in [total * 2, total, total / 2] {
        if let Some(plan) = target.assemble(&view, budget)? {
            judge_request(&view, &plan, budget)?;
        }
        checks += 1;
    }
    Ok(CaseStats { floor_use, ..CaseStats::with_checks(checks) })
}

fn judge_compaction(view: &Transcript, plan: &Plan, trigger: Trigger) -> Result<(), CheckFault> {
    let (before, after) = (view.total_tokens(), plan_tokens(view, plan));
    let name = trigger.name();
    if is_no_op(view, plan) {
        let message = format!(
            "compact ({name}) returned a plan that keeps all {} entries as they are; a no-op is \
             answered as Compaction::Nothing",
            view.len()
        );
        return Err(CheckFault::new("no-op", message));
    }
    if after >= before {
        let message = format!(
            "compact ({name}) made {after} tokens of {before}; a compaction that does not become \
             smaller is answered as Compaction::Nothing"
        );
        return Err(CheckFault::new("larger", message));
    }
    Ok(())
}

fn judge_request(view: &Transcript, plan: &Plan, budget: u64) -> Result<(), CheckFault> {
    let (before, after) = (view.total_tokens(), plan_tokens(view, plan));
    // Inserting a summary may grow a short conversation, as long as it fits the budget.
    if after > before && after > budget.max(FAIR_BUDGET_TOKENS) {
        let message = format!(
            "assemble made {after} tokens of {before}, with a budget of {budget}: larger than what it \
             was given and than what it was allowed"
        );
        return Err(CheckFault::new("larger", message));
    }
    Ok(())
}
