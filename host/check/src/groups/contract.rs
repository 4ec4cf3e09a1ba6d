//! `contract`: the suite that authors run in their own crate, on the very library.

use std::sync::{Arc, OnceLock};

use ctxhost_engine_api::testing::{CheckOutcome as Went, ContractOptions, contract};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::trace::CallTrace;

pub(super) const CASES: [NamedCase; 1] = [("the contract suite", run)];

/// How many times the limit of a call a whole check may take: its calls are many and small.
const CHECK_LIMITS: u32 = 2;

static TRACE: OnceLock<Arc<CallTrace>> = OnceLock::new();

fn run(bench: &CaseHarness<'_>) -> CaseOutcome {
    let _ = TRACE.set(bench.trace.clone());
    let options = ContractOptions {
        config: bench.config.clone(),
        completion: None,
        // The watch is quicker: it ends the whole suite, where this would wait in every check.
        call_limit: bench.call_limit * CHECK_LIMITS * 2,
        on_check: announce,
    };
    let report = contract(bench.factory, &options);
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

/// Leaves the name of a check in the trace, for whoever finds this process dead or hanging in it.
fn announce(check: &str) {
    if let Some(trace) = TRACE.get() {
        trace.start_check(check, CHECK_LIMITS);
    }
}
