//! The group `isolation`: each call in a separate process, so that an abort does not hide other failures.

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
    ("create", |harness| harness.open(harness.host()).map(|_| CaseStats::with_checks(1))),
    ("bootstrap", |harness| {
        on_fresh_session(harness, |target, view| {
            let (call, session) = (target.next_call_id(), target.session.clone());
            let request = BootstrapRequest { call, session };
            target.call("bootstrap", target.engine.bootstrap(view.clone(), request)).map(drop)
        })
    }),
    ("ingest", |harness| {
        on_fresh_session(harness, |target, view| target.try_ingest(view, 0..1).map(drop))
    }),
    ("ingest_batch", |harness| {
        on_fresh_session(harness, |target, view| {
            target.try_ingest(view, 0..view.len() as u64).map(drop)
        })
    }),
    ("assemble", |harness| {
        on_ingested_session(harness, |target, view| {
            // The extremes are where arithmetic overflows and indexing fails.
            [0, 1, 500, view.total_tokens() / 2, u64::MAX]
                .into_iter()
                .try_for_each(|budget| target.try_assemble(view, budget).map(drop))
        })
    }),
    ("compact", |harness| {
        on_ingested_session(harness, |target, view| {
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
            .try_for_each(|(budget, trigger)| target.compact(view, budget, trigger).map(drop))
        })
    }),
    ("after_turn", |harness| {
        on_ingested_session(harness, |target, view| {
            target.after_turn(view, 0..view.len() as u64).map(drop)
        })
    }),
    ("commit_turn", |harness| {
        on_ingested_session(harness, |target, view| target.commit(view, "key").map(drop))
    }),
    ("maintain", |harness| {
        on_ingested_session(harness, |target, view| target.maintain(view).map(drop))
    }),
    ("sub-agents", |harness| on_ingested_session(harness, subagents)),
    ("tools and call_tool", |harness| on_ingested_session(harness, tools)),
    ("status", |harness| {
        on_ingested_session(harness, |target, _| {
            target.call_sync("status", || target.engine.status()).map(drop)
        })
    }),
    ("dispose", |harness| on_ingested_session(harness, after_dispose)),
];

type SessionWork = fn(&CheckSession, &Transcript) -> Result<(), CheckFault>;

/// Runs `work` on a host with a model and a session that was not ingested.
fn on_fresh_session(harness: &CaseHarness<'_>, work: SessionWork) -> CaseOutcome {
    let target = harness.open(harness.host_with_model())?;
    work(&target, &workload::session(12).transcript())?;
    Ok(CaseStats::with_checks(1))
}

/// Runs `work` after a session was ingested.
fn on_ingested_session(harness: &CaseHarness<'_>, work: SessionWork) -> CaseOutcome {
    let target = harness.open(harness.host_with_model())?;
    let view = workload::session(12).transcript();
    target.bootstrap_and_ingest(&view)?;
    work(&target, &view)?;
    Ok(CaseStats::with_checks(1))
}

fn subagents(target: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    let (parent, child) = (target.session.clone(), target.session.clone());
    let request = SubagentSpawnRequest {
        call: target.next_call_id(),
        parent,
        child: child.clone(),
        context_mode: ContextMode::Fork,
        ttl_ms: 1_000,
    };
    let prepare = target.engine.prepare_subagent_spawn(view.clone(), request);
    let prepared = target.call("prepare_subagent_spawn", prepare)?;
    let token = prepared.map(|prepared| prepared.token).unwrap_or_default();
    for token in [token, "unknown".to_owned()] {
        let request = SubagentRollbackRequest { call: target.next_call_id(), token };
        let rollback = target.engine.rollback_subagent_spawn(request);
        let _ = target.call("rollback_subagent_spawn", rollback)?;
    }
    let request =
        SubagentEndedRequest { call: target.next_call_id(), child, reason: SubagentEnd::Unknown };
    target.call("on_subagent_ended", target.engine.on_subagent_ended(request)).map(drop)
}

fn tools(target: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    let specs = target.call_sync("tools", || target.engine.tools(&target.session))?;
    let offered = specs.unwrap_or_default().into_iter().map(|spec| spec.name);
    for name in offered.chain(["no_such_tool".to_owned()]) {
        for arguments in [json!({}), json!(null), json!({ "query": ["x"], "id": 7 })] {
            let (call, session, name) =
                (target.next_call_id(), target.session.clone(), name.clone());
            let request = ToolCallRequest { call, session, name, arguments };
            let _ = target.call("call_tool", target.engine.call_tool(view.clone(), request))?;
        }
    }
    Ok(())
}

/// Calls after `dispose`, which another thread of the host can make.
fn after_dispose(target: &CheckSession, view: &Transcript) -> Result<(), CheckFault> {
    target.dispose()?;
    let _ = target.try_assemble(view, 500)?;
    let _ = target.compact(view, 500, Trigger::Overflow)?;
    let _ = target.try_ingest(view, 0..1)?;
    target.call_sync("status", || target.engine.status()).map(drop)
}
