//! `progress`: nothing an engine does makes a conversation larger, and doing nothing is said plainly.
//!
//! A compaction that grows is tried again by whoever believes it; one that changes nothing and calls
//! itself a compaction has made agents loop for hours. A compaction that leaves less in use than it may,
//! though there is more to keep, forgets for nothing: those are counted, and the report says how many.

use ctxhost_engine_api::{Compaction, Plan, Transcript, Trigger};

use ctxhost_invariants::InvariantSettings;

use super::histories::HistoryKey;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::plan_check::{is_no_op, plan_tokens};
use crate::settings::FAIR_BUDGET;

/// Histories that are compacted; every fourth is a long one.
pub(super) const CASES: u64 = 48;

pub(super) fn run((number, family): HistoryKey, bench: &CaseHarness<'_>) -> CaseOutcome {
    let view = bench.history(number, family).transcript();
    if view.is_empty() {
        // Nothing cannot become less.
        return Ok(CaseStats::with_checks(1));
    }
    let host = if number % 2 == 0 { bench.host() } else { bench.host_with_model() };
    let stage = bench.open(host)?;
    stage.bootstrap_and_ingest(&view)?;
    let total = view.total_tokens();
    let (mut checks, mut room) = (0, (0, 0));
    for (budget, trigger) in [
        (total * 2, Trigger::Threshold),
        (total, Trigger::Manual),
        (total / 2, Trigger::Threshold),
        (total / 3, Trigger::Overflow),
        (0, Trigger::Timeout),
    ] {
        // Asked twice: after a compaction that could do nothing, the second try must say so, too.
        for _ in 0..2 {
            if let Ok(Compaction::Plan(plan)) = stage.compact(&view, budget, trigger)? {
                judge_compaction(&view, &plan, trigger)?;
                let floor = InvariantSettings::default().floor_tokens(budget);
                // What a plan counts as is an estimate, so a little less is no less.
                if floor > 0 && total > budget {
                    let is_below = plan_tokens(&view, &plan) + floor / 8 < floor;
                    room = (room.0 + 1, room.1 + u64::from(is_below));
                }
            }
            checks += 1;
        }
    }
    for budget in [total * 2, total, total / 2] {
        if let Some(plan) = stage.assemble(&view, budget)? {
            judge_request(&view, &plan, budget)?;
        }
        checks += 1;
    }
    Ok(CaseStats { floor_use: room, ..CaseStats::with_checks(checks) })
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
    if after > before && after > budget.max(FAIR_BUDGET) {
        let message = format!(
            "assemble made {after} tokens of {before}, with a budget of {budget}: larger than what it \
             was given and than what it was allowed"
        );
        return Err(CheckFault::new("larger", message));
    }
    Ok(())
}
