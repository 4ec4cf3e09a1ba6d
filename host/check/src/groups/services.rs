//! The group `services`: hosts whose services fail, return garbage, lose data or time out. The engine may
//! return errors, but must not panic, hang or return an invalid plan.

use ctxhost_engine_api::{Compaction, ErrorKind, Plan, Transcript, Trigger};
use serde_json::json;

use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::host::HostBehaviour;
use crate::plan_check::check_plan;
use crate::provider::ProviderFamily;
use crate::session::CheckSession;
use crate::workload;

/// The behaviours of the host, with names.
const BEHAVIOURS: [(&str, HostBehaviour); 9] = [
    ("services that fail", HostBehaviour::Failing(ErrorKind::Failed)),
    ("a store that fails", HostBehaviour::Failing(ErrorKind::Store)),
    ("a model that is throttled", HostBehaviour::Failing(ErrorKind::ModelRateLimited)),
    ("services that are not offered", HostBehaviour::Failing(ErrorKind::Unsupported)),
    ("a host that is disposed", HostBehaviour::Failing(ErrorKind::Dead)),
    ("services that time out", HostBehaviour::Late),
    ("invalid replies", HostBehaviour::Garbage),
    ("oversized replies", HostBehaviour::Huge),
    ("a host that loses data", HostBehaviour::Forgetful),
];

/// Each behaviour from the start, and after a first half with a correct host.
pub(super) const CASES: u64 = BEHAVIOURS.len() as u64 * 2;

fn behaviour_of(case: u64) -> (&'static str, HostBehaviour, bool) {
    let at = usize::try_from(case.saturating_sub(1)).unwrap_or(0);
    let (name, behaviour) =
        BEHAVIOURS.get(at % BEHAVIOURS.len()).copied().unwrap_or(("", HostBehaviour::Correct));
    (name, behaviour, at >= BEHAVIOURS.len())
}

pub(super) fn name(case: u64) -> String {
    match behaviour_of(case) {
        (name, _, true) => format!("{name}, after a correct phase"),
        (name, _, false) => name.to_owned(),
    }
}

pub(super) fn run(case: u64, harness: &CaseHarness<'_>) -> CaseOutcome {
    let (_, behaviour, is_delayed) = behaviour_of(case);
    let host = harness.host_with_model();
    let first_half = workload::session(6).transcript();
    let view = workload::session(14).transcript();
    if !is_delayed {
        host.set_behaviour(behaviour);
    }
    let target = match harness.open(host.clone()) {
        Ok(target) => target,
        // `create` may fail on such a host.
        // Panics and hangs in `create` have other rules and are reported.
        Err(fault) if fault.rule == "create" => return Ok(CaseStats::with_checks(1)),
        Err(fault) => return Err(fault),
    };
    if is_delayed {
        run_session(&target, &first_half, 0)?;
        host.set_behaviour(behaviour);
    }
    let checks = run_session(&target, &view, if is_delayed { first_half.len() as u64 } else { 0 })?;
    // The engine must recover once the host is correct again.
    host.set_behaviour(HostBehaviour::Correct);
    let plan = target.assemble(&view, view.total_tokens())?;
    check("assemble", &view, plan, view.total_tokens())?;
    target.dispose()?;
    Ok(CaseStats::with_checks(checks + 2))
}

/// Makes every call once; errors are valid.
fn run_session(target: &CheckSession, view: &Transcript, known: u64) -> Result<u64, CheckFault> {
    let len = view.len() as u64;
    let budget = view.total_tokens() / 2;
    let _ = target.try_bootstrap(view)?;
    let _ = target.try_ingest(view, known..len)?;
    check("assemble", view, target.try_assemble(view, budget)?.ok(), budget)?;
    let compaction = target.compact(view, budget, Trigger::Overflow)?;
    if let Ok(Compaction::Plan(plan)) = compaction {
        check("compact", view, Some(plan), budget)?;
    }
    let _ = target.after_turn(view, known..len)?;
    let _ = target.commit(view, &format!("until-{len}"))?;
    let _ = target.maintain(view)?;
    let tools = target.call_sync("tools", || target.engine.tools(&target.session))?;
    for spec in tools.unwrap_or_default() {
        let request = ctxhost_engine_api::ToolCallRequest {
            call: target.next_call_id(),
            session: target.session.clone(),
            name: spec.name,
            // Arguments that fit the usual search and lookup tools.
            arguments: json!({ "query": "lib.rs", "id": "again" }),
        };
        let _ = target.call("call_tool", target.engine.call_tool(view.clone(), request))?;
    }
    let _ = target.call_sync("status", || target.engine.status())?;
    Ok(9)
}

fn check(what: &str, view: &Transcript, plan: Option<Plan>, budget: u64) -> Result<(), CheckFault> {
    match plan {
        Some(plan) => check_plan(what, view, &plan, budget, ProviderFamily::Anthropic),
        None => Ok(()),
    }
}
