//! Checks of `compact`: a known kind of result, and a plan that is valid and not larger.

use super::session::ContractSession;
use super::{ContractOptions, ContractSuite, ContractVerdict, cases, plan_fault};
use crate::border::EngineFactory;
use crate::plan::{Compaction, Plan};
use crate::request::{CompactRequest, Trigger};
use crate::transcript::Transcript;

pub(super) fn run(suite: &mut ContractSuite<'_>) {
    for case in cases::all() {
        let rule = "delegates, declines, or returns a valid plan that is not larger";
        suite.check(format!("compact: {}", case.name), rule, |factory, options| {
            every_trigger(factory, options, &case.transcript)
        });
    }
}

fn every_trigger(
    factory: EngineFactory,
    options: &ContractOptions,
    transcript: &Transcript,
) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    target.bootstrap_and_ingest(transcript)?;
    let [none, _, tiny, share, all, _] = cases::budgets(transcript);
    // Each trigger with the kind of budget it occurs with.
    let tries = [
        (share, Trigger::Threshold, None),
        (none, Trigger::Overflow, None),
        (tiny, Trigger::Timeout, None),
        (all, Trigger::Manual, Some("keep the names of files".to_owned())),
    ];
    for (budget, trigger, custom_instructions) in tries {
        let force = trigger == Trigger::Manual;
        let request = target.compact_request(transcript, budget);
        let request = CompactRequest { trigger, force, custom_instructions, ..request };
        // An error leaves the session unchanged and is valid; panics fail in `compact`.
        if let Ok(Compaction::Plan(plan)) = target.compact(transcript, request)? {
            check_plan(&plan, transcript)
                .map_err(|fault| format!("{fault}; {}", trigger.name()))?;
        }
    }
    Ok(())
}

fn check_plan(plan: &Plan, transcript: &Transcript) -> ContractVerdict {
    if let Some(fault) = plan_fault(plan, transcript) {
        return Err(fault);
    }
    let before_tokens = transcript.total_tokens();
    // Measured like in the host, not taken from the engine's estimate.
    let after_tokens: u64 = plan.project(transcript).iter().map(|item| item.tokens()).sum();
    if after_tokens <= before_tokens {
        Ok(())
    } else {
        Err(format!("the plan grows from {before_tokens} to {after_tokens} tokens"))
    }
}
