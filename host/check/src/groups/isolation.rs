//! `isolation`: every call in a process of its own, so that one that aborts is named and hides no other.

use ctxhost_engine_api::{
    BootstrapRequest, ContextMode, SubagentEnd, SubagentEndedRequest, SubagentRollbackRequest,
    SubagentSpawnRequest, ToolCallRequest, Transcript, Trigger,
};
use serde_json::json;

use super::Named;
use crate::bench::Bench;
use crate::fault::{Fault, Outcome, Passed};
use crate::stage::Stage;
use crate::working;

pub(super) const CASES: [Named; 13] = [
    ("create", |bench| bench.open(bench.host()).map(|_| Passed::checks(1))),
    ("bootstrap", |bench| {
        with(bench, |stage, view| {
            let (call, session) = (stage.id(), stage.session.clone());
            let request = BootstrapRequest { call, session };
            stage.call("bootstrap", stage.engine.bootstrap(view.clone(), request)).map(drop)
        })
    }),
    ("ingest", |bench| with(bench, |stage, view| stage.try_ingest(view, 0..1).map(drop))),
    ("ingest_batch", |bench| {
        with(bench, |stage, view| stage.try_ingest(view, 0..view.len() as u64).map(drop))
    }),
    ("assemble", |bench| {
        fed(bench, |stage, view| {
            [0, 1, 500, view.total_tokens() / 2, u64::MAX]
                .into_iter()
                .try_for_each(|budget| stage.try_assemble(view, budget).map(drop))
        })
    }),
    ("compact", |bench| {
        fed(bench, |stage, view| {
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
        fed(bench, |stage, view| stage.after_turn(view, 0..view.len() as u64).map(drop))
    }),
    ("commit_turn", |bench| fed(bench, |stage, view| stage.commit(view, "key").map(drop))),
    ("maintain", |bench| fed(bench, |stage, view| stage.maintain(view).map(drop))),
    ("sub-agents", |bench| fed(bench, subagents)),
    ("tools and call_tool", |bench| fed(bench, tools)),
    ("status", |bench| {
        fed(bench, |stage, _| stage.at_work("status", || stage.engine.status()).map(drop))
    }),
    ("dispose", |bench| fed(bench, after_dispose)),
];

type Work = fn(&Stage, &Transcript) -> Result<(), Fault>;

/// The engine on a model and a session it has not heard of.
fn with(bench: &Bench<'_>, work: Work) -> Outcome {
    let stage = bench.open(bench.host_with_model())?;
    work(&stage, &working::session(12).transcript())?;
    Ok(Passed::checks(1))
}

/// The engine after it was told a session.
fn fed(bench: &Bench<'_>, work: Work) -> Outcome {
    let stage = bench.open(bench.host_with_model())?;
    let view = working::session(12).transcript();
    stage.take_in(&view)?;
    work(&stage, &view)?;
    Ok(Passed::checks(1))
}

fn subagents(stage: &Stage, view: &Transcript) -> Result<(), Fault> {
    let (parent, child) = (stage.session.clone(), stage.session.clone());
    let request = SubagentSpawnRequest {
        call: stage.id(),
        parent,
        child: child.clone(),
        context_mode: ContextMode::Fork,
        ttl_ms: 1_000,
    };
    let prepare = stage.engine.prepare_subagent_spawn(view.clone(), request);
    let prepared = stage.call("prepare_subagent_spawn", prepare)?;
    let token = prepared.map(|prepared| prepared.token).unwrap_or_default();
    for token in [token, "nobody's".to_owned()] {
        let request = SubagentRollbackRequest { call: stage.id(), token };
        let rollback = stage.engine.rollback_subagent_spawn(request);
        let _ = stage.call("rollback_subagent_spawn", rollback)?;
    }
    let request = SubagentEndedRequest { call: stage.id(), child, reason: SubagentEnd::Unknown };
    stage.call("on_subagent_ended", stage.engine.on_subagent_ended(request)).map(drop)
}

fn tools(stage: &Stage, view: &Transcript) -> Result<(), Fault> {
    let specs = stage.at_work("tools", || stage.engine.tools(&stage.session))?;
    let offered = specs.unwrap_or_default().into_iter().map(|spec| spec.name);
    for name in offered.chain(["no_such_tool".to_owned()]) {
        for arguments in [json!({}), json!(null), json!({ "query": ["x"], "id": 7 })] {
            let (call, session, name) = (stage.id(), stage.session.clone(), name.clone());
            let request = ToolCallRequest { call, session, name, arguments };
            let _ = stage.call("call_tool", stage.engine.call_tool(view.clone(), request))?;
        }
    }
    Ok(())
}

/// Late calls come from threads that did not know yet.
fn after_dispose(stage: &Stage, view: &Transcript) -> Result<(), Fault> {
    stage.dispose()?;
    let _ = stage.try_assemble(view, 500)?;
    let _ = stage.compact(view, 500, Trigger::Overflow)?;
    let _ = stage.try_ingest(view, 0..1)?;
    stage.at_work("status", || stage.engine.status()).map(drop)
}
