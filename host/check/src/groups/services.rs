//! `services`: a host whose services fail, lie, forget, or answer too late. Errors are answers; a panic,
//! a call without end or an unsound plan is not.

use ctxhost_engine_api::{Compaction, ErrorKind, Plan, Transcript, Trigger};
use serde_json::json;

use crate::bench::Bench;
use crate::fault::{Fault, Outcome, Passed};
use crate::host::Mood;
use crate::judge::judge;
use crate::provider::Family;
use crate::stage::Stage;
use crate::working;

/// How the host behaves, with its name.
const MOODS: [(&str, Mood); 9] = [
    ("services that fail", Mood::Failing(ErrorKind::Failed)),
    ("a store that fails", Mood::Failing(ErrorKind::Store)),
    ("a model that is throttled", Mood::Failing(ErrorKind::ModelRateLimited)),
    ("services that are not offered", Mood::Failing(ErrorKind::Unsupported)),
    ("a host that is gone", Mood::Failing(ErrorKind::Dead)),
    ("answers that come too late", Mood::Late),
    ("answers that nobody asked for", Mood::Garbage),
    ("answers without end", Mood::Huge),
    ("a host that forgets", Mood::Forgetful),
];

/// Each mood from the beginning, and each after an honest half.
pub(super) const CASES: u64 = MOODS.len() as u64 * 2;

fn mood_of(case: u64) -> (&'static str, Mood, bool) {
    let at = usize::try_from(case.saturating_sub(1)).unwrap_or(0);
    let (name, mood) = MOODS.get(at % MOODS.len()).copied().unwrap_or(("", Mood::Honest));
    (name, mood, at >= MOODS.len())
}

pub(super) fn name(case: u64) -> String {
    match mood_of(case) {
        (name, _, true) => format!("{name}, after an honest while"),
        (name, _, false) => name.to_owned(),
    }
}

pub(super) fn run(case: u64, bench: &Bench<'_>) -> Outcome {
    let (_, mood, after_a_while) = mood_of(case);
    let host = bench.host_with_model();
    let begun = working::session(6).transcript();
    let view = working::session(14).transcript();
    if !after_a_while {
        host.set_mood(mood);
    }
    let stage = match bench.open(host.clone()) {
        Ok(stage) => stage,
        // An engine may refuse to be created on such a host.
        Err(fault) if fault.rule == "create" => return Ok(Passed::checks(1)),
        Err(fault) => return Err(fault),
    };
    if after_a_while {
        live(&stage, &begun, 0)?;
        host.set_mood(mood);
    }
    let checks = live(&stage, &view, if after_a_while { begun.len() as u64 } else { 0 })?;
    // The host is itself again: so must the engine be.
    host.set_mood(Mood::Honest);
    let plan = stage.assemble(&view, view.total_tokens())?;
    judged("assemble", &view, plan, view.total_tokens())?;
    stage.dispose()?;
    Ok(Passed::checks(checks + 2))
}

/// Every call once; errors are answers.
fn live(stage: &Stage, view: &Transcript, known: u64) -> Result<u64, Fault> {
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
    let tools = stage.at_work("tools", || stage.engine.tools(&stage.session))?;
    for spec in tools.unwrap_or_default() {
        let request = ctxhost_engine_api::ToolCallRequest {
            call: stage.id(),
            session: stage.session.clone(),
            name: spec.name,
            arguments: json!({ "query": "lib.rs", "id": "again" }),
        };
        let _ = stage.call("call_tool", stage.engine.call_tool(view.clone(), request))?;
    }
    let _ = stage.at_work("status", || stage.engine.status())?;
    Ok(9)
}

fn judged(what: &str, view: &Transcript, plan: Option<Plan>, budget: u64) -> Result<(), Fault> {
    match plan {
        Some(plan) => judge(what, view, &plan, budget, Family::Anthropic),
        None => Ok(()),
    }
}
