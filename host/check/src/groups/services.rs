//! `services`: a host whose services fail, lie, forget, or answer too late. Errors are answers; a panic,
//! a call without end or an unsound plan is not.

use ctxhost_engine_api::{Compaction, ErrorKind, Plan, Transcript, Trigger};
use serde_json::json;

use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::host::HostBehaviour;
use crate::plan_check::check_plan;
use crate::provider::ProviderFamily;
use crate::session::CheckSession;
use crate::workload;

/// How the host behaves, with its name.
const MOODS: [(&str, HostBehaviour); 9] = [
    ("services that fail", HostBehaviour::Failing(ErrorKind::Failed)),
    ("a store that fails", HostBehaviour::Failing(ErrorKind::Store)),
    ("a model that is throttled", HostBehaviour::Failing(ErrorKind::ModelRateLimited)),
    ("services that are not offered", HostBehaviour::Failing(ErrorKind::Unsupported)),
    ("a host that is gone", HostBehaviour::Failing(ErrorKind::Dead)),
    ("answers that come too late", HostBehaviour::Late),
    ("answers that nobody asked for", HostBehaviour::Garbage),
    ("answers without end", HostBehaviour::Huge),
    ("a host that forgets", HostBehaviour::Forgetful),
];

/// Each mood from the beginning, and each after an honest half.
pub(super) const CASES: u64 = MOODS.len() as u64 * 2;

fn mood_of(case: u64) -> (&'static str, HostBehaviour, bool) {
    let at = usize::try_from(case.saturating_sub(1)).unwrap_or(0);
    let (name, mood) = MOODS.get(at % MOODS.len()).copied().unwrap_or(("", HostBehaviour::Correct));
    (name, mood, at >= MOODS.len())
}

pub(super) fn name(case: u64) -> String {
    match mood_of(case) {
        (name, _, true) => format!("{name}, after an honest while"),
        (name, _, false) => name.to_owned(),
    }
}

pub(super) fn run(case: u64, bench: &CaseHarness<'_>) -> CaseOutcome {
    let (_, mood, after_a_while) = mood_of(case);
    let host = bench.host_with_model();
    let begun = workload::session(6).transcript();
    let view = workload::session(14).transcript();
    if !after_a_while {
        host.set_behaviour(mood);
    }
    let stage = match bench.open(host.clone()) {
        Ok(stage) => stage,
        // An engine may refuse to be created on such a host.
        Err(fault) if fault.rule == "create" => return Ok(CaseStats::with_checks(1)),
        Err(fault) => return Err(fault),
    };
    if after_a_while {
        live(&stage, &begun, 0)?;
        host.set_behaviour(mood);
    }
    let checks = live(&stage, &view, if after_a_while { begun.len() as u64 } else { 0 })?;
    // The host is itself again: so must the engine be.
    host.set_behaviour(HostBehaviour::Correct);
    let plan = stage.assemble(&view, view.total_tokens())?;
    judged("assemble", &view, plan, view.total_tokens())?;
    stage.dispose()?;
    Ok(CaseStats::with_checks(checks + 2))
}

/// Every call once; errors are answers.
fn live(stage: &CheckSession, view: &Transcript, known: u64) -> Result<u64, CheckFault> {
    let len = view.len() as u64;
    let budget = view.total_tokens() / 2;
    let _ = stage.try_bootstrap(view)?;
    let _ = stage.try_ingest(view, known..len)?;
    judged("assemble", view, stage.try_assemble(view, budget)?.ok(), budget)?;
    let compaction = stage.compact(view, budget, Trigger::Overflow)?;
    if let Ok(Compaction::Plan(plan)) = compaction {
        judged("compact", view, Some(plan), budget)?;
    }
    let _ = stage.after_turn(view, known..len)?;
    let _ = stage.commit(view, &format!("until-{len}"))?;
    let _ = stage.maintain(view)?;
    let tools = stage.call_sync("tools", || stage.engine.tools(&stage.session))?;
    for spec in tools.unwrap_or_default() {
        let request = ctxhost_engine_api::ToolCallRequest {
            call: stage.next_call_id(),
            session: stage.session.clone(),
            name: spec.name,
            arguments: json!({ "query": "lib.rs", "id": "again" }),
        };
        let _ = stage.call("call_tool", stage.engine.call_tool(view.clone(), request))?;
    }
    let _ = stage.call_sync("status", || stage.engine.status())?;
    Ok(9)
}

fn judged(
    what: &str,
    view: &Transcript,
    plan: Option<Plan>,
    budget: u64,
) -> Result<(), CheckFault> {
    match plan {
        Some(plan) => check_plan(what, view, &plan, budget, ProviderFamily::Anthropic),
        None => Ok(()),
    }
}
