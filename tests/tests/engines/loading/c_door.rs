//! C engines: every call and every service crosses the C interface complete.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::Config;
use ctxhost_engine::{Isolation, inspect};
use ctxhost_engine_api::border::{EngineFactory, EngineHandle, EntryPoint};
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::*;
use ctxhost_tests::bundled_library;
use ctxhost_tests::native::native_library;
use serde_json::json;

const EVERY_CALL: &str = "tests/fixtures/c/every_call.c";

pub(super) fn door(library: &Path) -> EngineFactory {
    let copies = tempfile::tempdir().unwrap();
    inspect(library).unwrap().load(copies.path()).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn create(
    library: &Path,
    host: &ScriptedHost,
    config: &serde_json::Value,
) -> EngineHandle {
    door(library).create(Arc::new(host.clone()), config).unwrap()
}

/// user, calls (c1, c"2), result, failed result, assistant, user
pub(super) fn talk() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("begin").calls(&[("c1", "read", r#"{"path":"a"}"#), ("c\"2", "ls", "{}")]);
    talk.result("c1", "read", "text").failure("c\"2", "ls", "no file").assistant("so").user("on");
    talk.transcript()
}

pub(super) fn session() -> SessionRef {
    SessionRef { id: "s".into(), key: "agent:main".into() }
}

fn model() -> ModelRef {
    ModelRef { provider: "p".into(), id: "m".into(), window_tokens: 9 }
}

fn messages(host: &ScriptedHost) -> Vec<String> {
    host.log_lines().into_iter().map(|line| line.message).collect()
}

#[test]
fn the_file_says_what_it_is() {
    let meta = inspect(&native_library(EVERY_CALL, &[])).unwrap().meta;
    assert_eq!((meta.id.as_str(), meta.version.as_str()), ("every-call", "0.1.0"));
    assert_eq!((meta.entry_point, meta.language.as_str()), (EntryPoint::C, "c"));
    assert!(!meta.rustc.is_empty() && meta.needs_process());
    assert_eq!(meta.api, border::EngineMetadata::current().api);
    let cpp = inspect(&native_library("examples/cpp-elide/elide.cpp", &[])).unwrap().meta;
    assert_eq!((cpp.entry_point, cpp.language.as_str()), (EntryPoint::C, "c++"));
    let info = door(&native_library(EVERY_CALL, &[])).info().unwrap();
    assert_eq!(
        (info.name.as_str(), info.requires),
        ("Every call", vec!["kv".into(), "blob".into()])
    );
}

#[test]
fn it_sits_in_a_process_unless_its_own_entry_says_otherwise() {
    let in_c = native_library(EVERY_CALL, &[]);
    let in_rust = bundled_library("mask");
    let isolation = |settings: &str, entry: &str, name: &str| {
        let text = format!(
            "[plugins]\n{settings}\n[plugins.entries.every-call]\npath = {in_c:?}\n{entry}\n\
             [plugins.entries.mask]\npath = {in_rust:?}\n"
        );
        let config = Config::parse("", &text).unwrap();
        EngineRegistry::load(&config).spec(&config, name).unwrap().isolation
    };
    let lane = "isolation = \"thread\"";
    for name in ["every-call", in_c.to_str().unwrap()] {
        assert_eq!(isolation("", "", name), Isolation::Process, "{name}");
        assert_eq!(isolation(lane, "", name), Isolation::Process, "{name}");
        assert_eq!(isolation("", lane, name), Isolation::Thread, "{name}");
    }
    for name in ["mask", in_rust.to_str().unwrap()] {
        assert_eq!(isolation("", "", name), Isolation::Process, "{name}");
        assert_eq!(isolation(lane, "", name), Isolation::Thread, "{name}");
    }
}

#[test]
fn requests_and_answers_of_the_hot_calls() {
    let host = ScriptedHost::new();
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({ "a": 1 }));
    assert_eq!(host.kv()["created"], r#"{"a":1}"#);

    let request = BootstrapRequest { call: CallId(1), session: session() };
    let taken = block_on(engine.bootstrap(talk(), request)).unwrap();
    assert_eq!(taken, BootstrapReply { imported: 6, reason: None });

    let request =
        IngestRequest { call: CallId(2), session: session(), entries: 2..5, is_heartbeat: true };
    let taken = block_on(engine.ingest_batch(talk(), request.clone())).unwrap();
    assert_eq!(taken.entries, 3, "a batch goes to ingest where there is no ingest_batch");
    block_on(engine.ingest(talk(), IngestRequest { entries: 5..6, ..request })).unwrap();

    let request = AssembleRequest {
        call: CallId(3),
        session: session(),
        budget: 4,
        reserve_tokens: 5,
        prompt: "go".into(),
        model: model(),
        available_tools: vec!["read".into(), "ls".into()],
        now_ms: 6,
    };
    let plan = block_on(engine.assemble(talk(), request)).unwrap();
    let mut expected = Plan::default();
    expected.keep(0..1).insert(Role::User, "in between", 1..2).note("every", "one entry");
    expected.replace_text(3, "shorter").leave_out(4..5).keep(5..6);
    expected.estimated_tokens = 77;
    expected.extras.system_prompt_addition = Some("be brief".into());
    assert_eq!(plan, expected);
    let said = [
        "bootstrap 1 s",
        "ingest 2 2..5 heartbeat 1",
        "ingest 2 5..6 heartbeat 1",
        "assemble 1 3 s agent:main budget 4 reserve 5 prompt go model p/m 9 tools 2 ls now 6",
    ];
    assert_eq!(messages(&host), said);
    let line = &host.log_lines()[0];
    assert_eq!((line.level, &line.fields), (LogLevel::Info, &json!({ "from": "c" })));
}

#[test]
fn every_outcome_of_a_compaction() {
    let host = ScriptedHost::new();
    let mut smaller = Plan::default();
    smaller.keep(5..6);
    host.set_delegate(Ok(Compaction::Plan(smaller.clone())));
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({}));
    let compact = |trigger| {
        let request = CompactRequest {
            call: CallId(1),
            session: session(),
            budget: 2,
            reserve_tokens: 3,
            current_tokens: 4,
            trigger,
            force: true,
            custom_instructions: Some("be kind".into()),
            model: model(),
            attempt: 5,
            now_ms: 6,
        };
        block_on(engine.compact(talk(), request)).unwrap()
    };
    assert_eq!(compact(Trigger::Threshold), Compaction::Delegate);
    assert_eq!(compact(Trigger::Manual), Compaction::Nothing { reason: "small enough".into() });
    assert_eq!(compact(Trigger::Overflow), Compaction::Plan(smaller));
    let mut first = Plan::default();
    first.keep(0..1);
    assert_eq!(compact(Trigger::Timeout), Compaction::Plan(first));
    let said = "compact 1 budget 2 reserve 3 current 4 trigger 1 force 1 say be kind model m attempt 5 now 6";
    assert_eq!(messages(&host)[0], said);
}

#[test]
fn requests_and_answers_of_the_cold_calls() {
    let host = ScriptedHost::new();
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({}));
    let request = AfterTurnRequest {
        call: CallId(1),
        session: session(),
        entries: 2..3,
        budget: 4,
        is_heartbeat: true,
        provider_tokens: 5,
        now_ms: 6,
    };
    block_on(engine.after_turn(talk(), request)).unwrap();
    let (advancement_key, entries) = ("turn-1".into(), 1..2);
    let request =
        CommitTurnRequest { call: CallId(1), session: session(), advancement_key, entries };
    assert_eq!(block_on(engine.commit_turn(talk(), request)).unwrap(), CommitTurnReply::Duplicate);
    let request = MaintainRequest { call: CallId(1), session: session(), reason: "turn".into() };
    let maintained = block_on(engine.maintain(talk(), request)).unwrap();
    assert_eq!(maintained, MaintainReply { changed: true, bytes_freed: 9, reason: None });
    let child = SessionRef { id: "child".into(), key: String::new() };
    let request = SubagentSpawnRequest {
        call: CallId(1),
        parent: session(),
        child: child.clone(),
        context_mode: ContextMode::Fork,
        ttl_ms: 7,
    };
    let prepared = block_on(engine.prepare_subagent_spawn(talk(), request)).unwrap();
    let request = SubagentRollbackRequest { call: CallId(1), token: prepared.token };
    let error = block_on(engine.rollback_subagent_spawn(request)).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Failed, "nothing to roll back"));
    assert_eq!(error.detail, json!({ "token": "token-1" }));
    let request = SubagentEndedRequest { call: CallId(1), child, reason: SubagentEnd::Swept };
    block_on(engine.on_subagent_ended(request)).unwrap();
    assert_eq!(engine.tools(&session()).unwrap()[0].name, "services");
    assert_eq!(engine.status().unwrap().summary, "late answer 0");
    block_on(engine.dispose()).unwrap();
    let said = [
        "after_turn 1 2..3 budget 4 provider 5 heartbeat 1 now 6",
        "commit_turn turn-1 1..2",
        "maintain turn",
        "spawn s child mode 1 ttl 7",
        "rollback 1 token-1",
        "ended child reason 3",
        "tools s",
        "dispose",
    ];
    assert_eq!(messages(&host), said);
    let error = engine.status().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Dead, "{error}");
}

#[test]
fn every_service_answers() {
    let host = ScriptedHost::new();
    host.answer("it is good");
    let entry =
        |text: &str| HistoryEntry { id: text.into(), text: text.into(), ..HistoryEntry::default() };
    host.set_history(vec![entry("long ago"), entry("lately")]);
    host.embed_with(|text| vec![text.len() as f32, 0.0, 1.0]);
    host.set_prompt_cache(PromptCache { read_tokens: 41, broke: true, ..PromptCache::default() });
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({}));
    let arguments = json!({ "deep": ["ä"] });
    let request =
        ToolCallRequest { call: CallId(1), session: session(), name: "services".into(), arguments };
    let answer = block_on(engine.call_tool(talk(), request)).unwrap();
    assert_eq!(answer, ToolAnswer { text: "all hold".into(), is_error: false });
    assert_eq!(messages(&host), [r#"call_tool services {"deep":["ä"]}"#, "torn \u{fffd}"]);
    assert_eq!(host.progress_reports(), [(CallId(1), 500, "half".into())]);
    let asked = &host.completion_requests()[0];
    assert_eq!((asked.purpose, asked.temperature), (Purpose::Quality, Some(0.5)));
    assert_eq!((asked.prompt.as_str(), asked.model.as_str()), ("how is it?", ""));
    let embedded = host.embed_requests();
    assert_eq!(embedded[0].purpose, EmbedPurpose::Query);
    assert_eq!(embedded[0].texts, ["abc", "abcde"]);
}

#[test]
fn a_thread_that_outlives_its_engine_reaches_nothing() {
    let (host, door) = (ScriptedHost::new(), door(&native_library(EVERY_CALL, &[])));
    let first = door.create(Arc::new(host.clone()), &json!({ "late_thread": 1 })).unwrap();
    block_on(first.dispose()).unwrap();
    first.revoke();
    let second = door.create(Arc::new(host), &json!({})).unwrap();
    let dead = format!("late answer {}", ErrorKind::Dead.code());
    let reported = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        second.status().unwrap().summary == dead
    });
    assert!(reported, "{:?}", second.status());
}
