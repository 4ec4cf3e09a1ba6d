//! Checks of the other calls, in the order of the lifecycle and after `dispose`.

use serde_json::json;

use super::session::{ContractSession, check_error_kind, expect_ok, session};
use super::{ContractOptions, ContractSuite, ContractVerdict, cases};
use crate::border::EngineFactory;
use crate::request::*;
use crate::testing::block_on_within;
use crate::transcript::Transcript;

pub(super) fn run(suite: &mut ContractSuite<'_>) {
    suite.check("ingest: one by one", "every entry is taken note of", one_by_one);
    suite.check("turn: after and commit", "after_turn and commit_turn answer", turns);
    suite.check("turn: committed twice", "a repeated commit changes nothing", committed_twice);
    suite.check("maintain: every reason", "maintain answers", maintains);
    suite.check("subagent: spawn and end", "prepare, rollback and end answer", subagents);
    suite.check("tools: specs and calls", "tools are well named and answer any arguments", tools);
    suite.check("status: any time", "status answers", status);
    suite.check("dispose: calls after it", "late calls answer, nothing panics", after_dispose);
}

fn busy_session(
    factory: EngineFactory,
    options: &ContractOptions,
) -> Result<(ContractSession, Transcript), String> {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(50).transcript();
    target.bootstrap_and_ingest(&transcript)?;
    Ok((target, transcript))
}

fn one_by_one(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(30).transcript();
    for seq in 0..transcript.len() as u64 {
        let mut request = target.ingest_request(seq..seq + 1);
        // Some heartbeats between messages, as from a scheduled agent.
        request.is_heartbeat = seq % 7 == 6;
        let call = target.engine.ingest(transcript.clone(), request);
        let taken = expect_ok("ingest", target.wait("ingest", call)?)?;
        if taken.entries > 1 {
            return Err(format!("ingest reported {} entries of one", taken.entries));
        }
    }
    target.ingest(&transcript, 30..30)
}

fn turns(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    for (turn, entries) in [0..10, 10..50, 50..50].into_iter().enumerate() {
        let request = AfterTurnRequest {
            call: target.next_call_id(),
            session: target.session.clone(),
            entries: entries.clone(),
            budget: 2_000,
            provider_tokens: 1_234,
            ..AfterTurnRequest::default()
        };
        let call = target.engine.after_turn(transcript.clone(), request);
        expect_ok("after_turn", target.wait("after_turn", call)?)?;
        commit(&target, &transcript, &format!("turn-{turn}"))?;
    }
    Ok(())
}

fn commit(
    target: &ContractSession,
    transcript: &Transcript,
    key: &str,
) -> Result<CommitTurnReply, String> {
    let request = CommitTurnRequest {
        call: target.next_call_id(),
        session: target.session.clone(),
        advancement_key: key.into(),
        entries: 0..transcript.len() as u64,
    };
    let call = target.engine.commit_turn(transcript.clone(), request);
    expect_ok("commit_turn", target.wait("commit_turn", call)?)
}

fn committed_twice(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    let budget = transcript.total_tokens() / 2;
    commit(&target, &transcript, "the-same-key")?;
    let once = target.assemble(&transcript, budget)?;
    commit(&target, &transcript, "the-same-key")?;
    let twice = target.assemble(&transcript, budget)?;
    (once == twice).then_some(()).ok_or("the plan changed with the repeat".into())
}

fn maintains(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    // The reason is a string because newer hosts may add some.
    for reason in ["bootstrap", "turn", "compaction", "a reason of a newer host"] {
        let (call, session) = (target.next_call_id(), target.session.clone());
        let request = MaintainRequest { call, session, reason: reason.into() };
        let call = target.engine.maintain(transcript.clone(), request);
        expect_ok("maintain", target.wait("maintain", call)?)?;
    }
    Ok(())
}

fn subagents(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    for (context_mode, reason) in
        [(ContextMode::Fork, SubagentEnd::Completed), (ContextMode::Isolated, SubagentEnd::Unknown)]
    {
        let request = SubagentSpawnRequest {
            call: target.next_call_id(),
            parent: target.session.clone(),
            child: session("child"),
            context_mode,
            ttl_ms: 60_000,
        };
        let call = target.engine.prepare_subagent_spawn(transcript.clone(), request);
        let prepared =
            expect_ok("prepare_subagent_spawn", target.wait("prepare_subagent_spawn", call)?)?;
        // A token of another run, as after a restart, must not cause a panic.
        for token in [prepared.token, "an unknown token".into()] {
            let request = SubagentRollbackRequest { call: target.next_call_id(), token };
            let call = target.engine.rollback_subagent_spawn(request);
            let _ = target.wait("rollback_subagent_spawn", call)?;
        }
        let child = session("child");
        let request = SubagentEndedRequest { call: target.next_call_id(), child, reason };
        let _ = target.wait("on_subagent_ended", target.engine.on_subagent_ended(request))?;
    }
    Ok(())
}

fn tools(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    let specs =
        expect_ok("tools", check_error_kind("tools", target.engine.tools(&target.session))?)?;
    specs.iter().try_for_each(tool_is_sound)?;
    let unknown = "no_such_tool_of_any_engine".to_owned();
    for name in specs.into_iter().map(|spec| spec.name).chain([unknown.clone()]) {
        for arguments in [json!({}), json!(null), json!({ "query": 7, "id": ["x"] })] {
            let (call, session) = (target.next_call_id(), target.session.clone());
            let request = ToolCallRequest { call, session, name: name.clone(), arguments };
            let answer = target
                .wait("call_tool", target.engine.call_tool(transcript.clone(), request))
                .map_err(|fault| format!("tool {name:?}: {fault}"))?;
            if name == unknown && answer.is_ok_and(|answer| !answer.is_error) {
                return Err("an unknown tool returned a result without is_error".into());
            }
        }
    }
    Ok(())
}

fn tool_is_sound(spec: &ToolSpec) -> ContractVerdict {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !(1..=64).contains(&spec.name.len()) || !spec.name.bytes().all(is_valid) {
        return Err(format!(
            "the tool name {:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$",
            spec.name
        ));
    }
    let is_object = spec.input_schema.get("type").is_some_and(|kind| kind == "object");
    is_object.then_some(()).ok_or(format!("the schema of tool {:?} is not an object", spec.name))
}

fn status(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let fresh = ContractSession::open(factory, options)?;
    expect_ok("status", check_error_kind("status", fresh.engine.status())?)?;
    let (busy, _) = busy_session(factory, options)?;
    expect_ok("status", check_error_kind("status", busy.engine.status())?).map(drop)
}

fn after_dispose(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (target, transcript) = busy_session(factory, options)?;
    match block_on_within(options.call_limit, target.engine.dispose()) {
        None => return Err(format!("dispose took longer than {:?}", options.call_limit)),
        Some(disposed) => expect_ok("dispose", disposed)?,
    }
    // As in a host: threads of the engine may still hold the services.
    target.engine.revoke();
    let assemble = target.engine.assemble(transcript.clone(), target.assemble_request(500));
    let _ = target.wait("assemble after dispose", assemble)?;
    let _ = target.compact(&transcript, target.compact_request(&transcript, 500))?;
    let ingest = target.engine.ingest(transcript.clone(), target.ingest_request(0..50));
    let _ = target.wait("ingest after dispose", ingest)?;
    let _ = check_error_kind("status after dispose", target.engine.status())?;
    let _ = check_error_kind("tools after dispose", target.engine.tools(&target.session))?;
    Ok(())
}
