//! The group `contract`: the contract suite of the engine API on the built library.

use std::sync::{Arc, OnceLock};

use ctxhost_engine_api::testing::{CheckOutcome as Went, ContractOptions, contract};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::trace::CallTrace;

pub(super) const CASES: [NamedCase; 1] = [("the contract suite", run)];

/// The time limit of a whole check, as a multiple of the limit of a call.
const CHECK_LIMITS: u32 = 2;

static TRACE: OnceLock<Arc<CallTrace>> = OnceLock::new();

fn run(harness: &CaseHarness<'_>) -> CaseOutcome {
    // A static, because `on_check` is a function pointer without state.
    let _ = TRACE.set(harness.trace.clone());
    let options = ContractOptions {
        config: harness.config.clone(),
        // Groups with a model run elsewhere in the suite.
        completion: None,
        // Longer than the limit of the watchdog, which ends the process; this one would wait in every check.
        call_limit: harness.call_limit * CHECK_LIMITS * 2,
        on_check: announce,
    };
    let report = contract(harness.factory, &options);
    let failed: Vec<String> = report
        .failures()
        .into_iter()
        .map(|check| match &check.outcome {
            Went::Ok => check.name.clone(),
            Went::Failed(message) => format!("{}: {message} (rule: {})", check.name, check.rule),
        })
        .collect();
    match failed.split_first() {
        None => Ok(CaseStats::with_checks(report.checks.len() as u64)),
        Some((first, [])) => Err(CheckFault::new("contract", first)),
        Some((first, more)) => Err(CheckFault::new(
            "contract",
            format!("{first}; and {} more checks failed", more.len()),
        )),
    }
}

/// Records the name of a check in the trace, so that the parent knows where this process died.
fn announce(check: &str) {
    if let Some(trace) = TRACE.get() {
        trace.start_check(check, CHECK_LIMITS);
    }
}
