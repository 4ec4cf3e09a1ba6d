//! `isolation`: every call in a process of its own, so that one that aborts is named and hides no other.

use ctxhost_engine_api::{
    BootstrapRequest, ContextMode, SubagentEnd, SubagentEndedRequest, SubagentRollbackRequest,
    SubagentSpawnRequest, ToolCallRequest, Transcript, Trigger,
};
use serde_json::json;

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::session::CheckSession;
use crate::workload;

pub(super) const CASES: [NamedCase; 13] = [
    ("create", |bench| bench.open(bench.host()).map(|_| CaseStats::with_checks(1))),
    ("bootstrap", |bench| {
        on_fresh_session(bench, |stage, view| {
            let (call, session) = (stage.next_call_id(), stage.session.clone());
            let request = BootstrapRequest { call, session };
            stage.call("bootstrap", stage.engine.bootstrap(view.clone(), request)).map(drop)
        })
    }),
    ("ingest", |bench| {
        on_fresh_session(bench, |stage, view| stage.try_ingest(view, 0..1).map(drop))
    }),
    ("ingest_batch", |bench| {
        on_fresh_session(bench, |stage, view| {
            stage.try_ingest(view, 0..view.len() as u64).map(drop)
        })
    }),
    ("assemble", |bench| {
        on_ingested_session(bench, |stage, view| {
            [0, 1, 500, view.total_tokens() / 2, u64::MAX]
                .into_iter()
                .try_for_each(|budget| stage.try_assemble(view, budget).map(drop))
        })
    }),
    ("compact", |bench| {
        on_ingested_session(bench, |stage, view| {
            let half = view.total_tokens() / 2;
            [
                (half, Trigger::Threshold),
                (half, Trigger::Overflow),
                (0, Trigger::Manual),
                (half, Trigger::Timeout),
                (half, Trigger::Bytes),
                (half, Trigger::Unknown),
            ]
            .into_iter()
            .try_for_each(|(budget, trigger)| stage.compact(view, budget, trigger).map(drop))
        })
    }),
    ("after_turn", |bench| {
        on_ingested_session(bench, |stage, view| {
            stage.after_turn(view, 0..view.len() as u64).map(drop)
        })
    }),
    ("commit_turn", |bench| {
        on_ingested_session(bench, |stage, view| stage.commit(view, "key").map(drop))
    }),
    ("maintain", |bench| on_ingested_session(bench, |stage, view| stage.maintain(view).map(drop))),
    ("sub-agents", |bench| on_ingested_session(bench, subagents)),
    ("tools and call_tool", |bench| on_ingested_session(bench, tools)),
    ("status", |bench| {
        on_ingested_session(bench, |stage, _| {
            stage.call_sync("status", || stage.engine.status()).map(drop)
        })
    }),
    ("dispose", |bench| on_ingested_session(bench, after_dispose)),
];

type SessionWork = fn(&CheckSession, &Transcript) -> Result<(), CheckFault>;

/// The engine on a model and a session it has not heard of.
fn on_fresh_session(bench: &CaseHarness<'_>, work: SessionWork) -> CaseOutcome {
    let stage = bench.open(bench.host_with_model())?;
    work(&stage, &workload::session(12).transcript())?;
    Ok(CaseStats::with_checks(1))
}

/// The engine after it was told a session.
fn on_ingested_session(bench: &CaseHarness<'_>, work: SessionWork) -> CaseOutcome {
    let stage = bench.open(bench.host_with_model())?;
    let view = workload::session(12).transcript();
    stage.bootstrap_and_ingest(&view)?;
    work(&stage, &view)?;
    Ok(CaseStats::with_checks(1))
}

fn subagents(stage: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    let (parent, child) = (stage.session.clone(), stage.session.clone());
    let request = SubagentSpawnRequest {
        call: stage.next_call_id(),
        parent,
        child: child.clone(),
        context_mode: ContextMode::Fork,
        ttl_ms: 1_000,
    };
    let prepare = stage.engine.prepare_subagent_spawn(view.clone(), request);
    let prepared = stage.call("prepare_subagent_spawn", prepare)?;
    let token = prepared.map(|prepared| prepared.token).unwrap_or_default();
    for token in [token, "nobody's".to_owned()] {
        let request = SubagentRollbackRequest { call: stage.next_call_id(), token };
        let rollback = stage.engine.rollback_subagent_spawn(request);
        let _ = stage.call("rollback_subagent_spawn", rollback)?;
    }
    let request =
        SubagentEndedRequest { call: stage.next_call_id(), child, reason: SubagentEnd::Unknown };
    stage.call("on_subagent_ended", stage.engine.on_subagent_ended(request)).map(drop)
}

fn tools(stage: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    let specs = stage.call_sync("tools", || stage.engine.tools(&stage.session))?;
    let offered = specs.unwrap_or_default().into_iter().map(|spec| spec.name);
    for name in offered.chain(["no_such_tool".to_owned()]) {
        for arguments in [json!({}), json!(null), json!({ "query": ["x"], "id": 7 })] {
            let (call, session, name) = (stage.next_call_id(), stage.session.clone(), name.clone());
            let request = ToolCallRequest { call, session, name, arguments };
            let _ = stage.call("call_tool", stage.engine.call_tool(view.clone(), request))?;
        }
    }
    Ok(())
}

/// Late calls come from threads that did not know yet.
fn after_dispose(stage: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    stage.dispose()?;
    let _ = stage.try_assemble(view, 500)?;
    let _ = stage.compact(view, 500, Trigger::Overflow)?;
    let _ = stage.try_ingest(view, 0..1)?;
    stage.call_sync("status", || stage.engine.status()).map(drop)
}
