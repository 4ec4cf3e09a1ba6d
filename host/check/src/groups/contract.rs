//! The group `contract`: the contract suite of the engine API on the built library.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ctxhost_engine_api::testing::{CheckOutcome as Went, ContractOptions, contract};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::trace::CallTrace;
use crate::workload;

pub(super) const CASES: [NamedCase; 2] =
    [("the contract suite", run), ("names of tools", tool_names)];

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

/// Each tool has a name of its own: of two with one name, a model can call one at most, and providers reject the request.
fn tool_names(harness: &CaseHarness<'_>) -> CaseOutcome {
    let target = harness.open(harness.host_with_model())?;
    target.bootstrap_and_ingest(&workload::session(2).transcript())?;
    // The contract suite reports errors of this call.
    let tools = target.call_sync("tools", || target.engine.tools(&target.session))?;
    let names: Vec<String> = tools.unwrap_or_default().into_iter().map(|tool| tool.name).collect();
    target.dispose()?;
    match describe_repeated(&names) {
        Some(message) => Err(CheckFault::new("tools", message)),
        None => Ok(CaseStats::with_checks(1)),
    }
}

/// The message about names that occur more than once; `None` if there are none.
fn describe_repeated(names: &[String]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let repeated: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(name, count)| format!("{count} tools named {name:?}"))
        .collect();
    (!repeated.is_empty()).then(|| {
        format!(
            "tools offered {}; a model calls a tool by its name, so give each tool a name of its own",
            repeated.join(", ")
        )
    })
}

/// Records the name of a check in the trace, so that the parent knows where this process died.
fn announce(check: &str) {
    if let Some(trace) = TRACE.get() {
        trace.start_check(check, CHECK_LIMITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_tools_are_counted() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(describe_repeated(&names(&["search", "open"])), None);
        let message = describe_repeated(&names(&["search", "open", "search"])).unwrap();
        assert!(message.starts_with("tools offered 2 tools named \"search\"; "), "{message}");
    }
}
