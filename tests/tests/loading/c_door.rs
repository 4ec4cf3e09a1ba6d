//! Engines behind the C door: every call and every service arrives, and what a C engine gets wrong is
//! an error that says so.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctxhost::engine::{EngineSpec, LiveEngine, inspect};
use ctxhost_engine_api::border::{Door, EngineDoor, EngineHandle};
use ctxhost_engine_api::testing::{Conversation, ScriptedHost, block_on, block_on_within};
use ctxhost_engine_api::*;
use ctxhost_tests::native::native_library;
use serde_json::json;

const EVERY_CALL: &str = "tests/fixtures/c/every_call.c";
const WICKED: &str = "tests/fixtures/c/wicked.c";

fn door(library: &Path) -> EngineDoor {
    let copies = tempfile::tempdir().unwrap();
    inspect(library).unwrap().load(copies.path()).unwrap_or_else(|error| panic!("{error}"))
}

fn create(library: &Path, host: &ScriptedHost, config: &serde_json::Value) -> EngineHandle {
    door(library).create(Arc::new(host.clone()), config).unwrap()
}

/// user, calls (c1, c"2), result, failed result, assistant, user
fn talk() -> Transcript {
    let mut talk = Conversation::new();
    talk.user("begin").calls(&[("c1", "read", r#"{"path":"a"}"#), ("c\"2", "ls", "{}")]);
    talk.result("c1", "read", "text").failure("c\"2", "ls", "no file").assistant("so").user("on");
    talk.transcript()
}

fn session() -> SessionRef {
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
    assert_eq!((meta.door, meta.language.as_str()), (Door::C, "c"));
    assert!(!meta.rustc.is_empty() && meta.wants_a_process());
    assert_eq!(meta.api, border::Meta::ours().api);
    let cpp = inspect(&native_library("examples/cpp-elide/elide.cpp", &[])).unwrap().meta;
    assert_eq!((cpp.door, cpp.language.as_str()), (Door::C, "c++"));
    let info = door(&native_library(EVERY_CALL, &[])).info().unwrap();
    assert_eq!(
        (info.name.as_str(), info.requires),
        ("Every call", vec!["kv".into(), "blob".into()])
    );
}

#[test]
fn requests_and_answers_of_the_hot_calls() {
    let host = ScriptedHost::new();
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({ "a": 1 }));
    assert_eq!(host.kv()["created"], r#"{"a":1}"#);

    let request = BootstrapRequest { call: CallId(1), session: session() };
    let taken = block_on(engine.bootstrap(talk(), request)).unwrap();
    assert_eq!(taken, Bootstrapped { imported: 6, reason: None });

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
    assert_eq!(block_on(engine.commit_turn(talk(), request)).unwrap(), Committed::Duplicate);
    let request = MaintainRequest { call: CallId(1), session: session(), reason: "turn".into() };
    let maintained = block_on(engine.maintain(talk(), request)).unwrap();
    assert_eq!(maintained, Maintained { changed: true, bytes_freed: 9, reason: None });
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
    host.set_prompt_cache(PromptCache { read_tokens: 41, broke: true, ..PromptCache::default() });
    let engine = create(&native_library(EVERY_CALL, &[]), &host, &json!({}));
    let arguments = json!({ "deep": ["ä"] });
    let request =
        ToolCallRequest { call: CallId(1), session: session(), name: "services".into(), arguments };
    let answer = block_on(engine.call_tool(talk(), request)).unwrap();
    assert_eq!(answer, ToolAnswer { text: "all hold".into(), is_error: false });
    assert_eq!(messages(&host), [r#"call_tool services {"deep":["ä"]}"#, "torn \u{fffd}"]);
    assert_eq!(host.progress_reports(), [(CallId(1), 500, "half".into())]);
    let asked = &host.asked()[0];
    assert_eq!((asked.purpose, asked.temperature), (Purpose::Quality, Some(0.5)));
    assert_eq!((asked.prompt.as_str(), asked.model.as_str()), ("how is it?", ""));
}

#[test]
fn a_thread_that_outlives_its_engine_reaches_nothing() {
    let (host, door) = (ScriptedHost::new(), door(&native_library(EVERY_CALL, &[])));
    let first = door.create(Arc::new(host.clone()), &json!({ "late_thread": 1 })).unwrap();
    block_on(first.dispose()).unwrap();
    first.revoke();
    let second = door.create(Arc::new(host), &json!({})).unwrap();
    let dead = format!("late answer {}", ErrorKind::Dead.code());
    let told = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        second.status().unwrap().summary == dead
    });
    assert!(told, "{:?}", second.status());
}

fn refused(macros: &[&str], says: &str) {
    let spec = EngineSpec::file("wicked", &native_library(WICKED, macros), json!({}));
    let error = LiveEngine::open(&spec, &super::environment()).unwrap_err().to_string();
    assert!(error.contains(says), "{macros:?}: {error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_table_that_is_none() {
    refused(&["NO_TABLE"], "its table is none of ctxhost_engine.h (the table is NULL)");
    refused(&["SHORT"], "the table says struct_size 40; at least");
    refused(&["HUGE_SIZE"], "the table says struct_size 18446744073709551615");
    refused(&["NO_CREATE"], "create is NULL");
    refused(&["NO_ASSEMBLE"], "assemble is NULL");
    refused(&["NO_COMPACT"], "compact is NULL; write it, or set CTXHOST_DELEGATES_COMPACTION");
    refused(&["NO_NAME"], "its name is empty");
    refused(&["TORN_NAME"], "its name: a text is not UTF-8 from byte 5 on");
    refused(&["NO_NEEDS"], "its list of 1 needs is no list");
    refused(&["NO_SYMBOL"], "does not export context_engine_c_v1");
    refused(&["OTHER_ID"], "calls itself \"innocent\" but its metadata says \"wicked\"");
}

#[test]
fn another_machine() {
    let library = native_library(WICKED, &["SAFE"]);
    let bytes = std::fs::read(&library).unwrap();
    let ours = format!("target={}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let theirs = ours.replace(std::env::consts::ARCH, &"x".repeat(std::env::consts::ARCH.len()));
    let at = super::memchr_all(&bytes, ours.as_bytes())[0];
    let mut patched = bytes;
    patched.splice(at..at + theirs.len(), theirs.bytes());
    super::refused_bytes(&patched, "was built for target xxxxxx");
}

/// A wicked engine in a mode.
fn wicked(mode: &str) -> EngineHandle {
    let library = native_library(WICKED, &[]);
    create(&library, &ScriptedHost::new(), &json!({ "mode": mode }))
}

fn request() -> AssembleRequest {
    AssembleRequest { call: CallId(1), session: session(), ..AssembleRequest::default() }
}

fn assemble_fails(mode: &str, kind: ErrorKind, says: &str) -> EngineError {
    let error = block_on(wicked(mode).assemble(talk(), request())).expect_err(mode);
    assert_eq!(error.kind, kind, "{mode}: {error}");
    assert!(error.message.contains(says), "{mode}: {error}");
    error
}

#[test]
fn plans_that_make_no_sense() {
    let wrong = |mode, says| drop(assemble_fails(mode, ErrorKind::Protocol, says));
    wrong("bad-text", "a text is not UTF-8 from byte 5 on");
    wrong("null-text", "a text of 9 bytes stands at NULL");
    wrong("backward", "assemble names 2..1 of 6 entries");
    wrong("past-the-end", "assemble names 0..7 of 6 entries");
    wrong("replace-past-the-end", "of 6 entries");
    wrong("bad-role", "role 1 is neither user nor assistant");
    wrong("bad-extras", "bad JSON");
    wrong("wrong-setter", "set_count is no way to answer assemble");
    wrong("no-compaction", "compact_delegate is no way to answer assemble");
    wrong("never", "assemble answered nothing; call plan_keep or set_error");
    wrong("note-alone", "assemble answered nothing");
}

#[test]
fn errors_without_and_with_a_text() {
    let small = ErrorKind::WindowTooSmall;
    assemble_fails("status-alone", small, "assemble failed with status 3 and gave no reason");
    assemble_fails("strange-status", ErrorKind::Other(4711), "status 4711 and gave no reason");
    assemble_fails("error-without-text", ErrorKind::CannotFit, "status 5 and gave no reason");
    assemble_fails("error-but-ok", ErrorKind::Failed, "it said ok all the same");
    let error = assemble_fails("two-errors", ErrorKind::Failed, "the cause");
    assert_eq!(error.detail, json!("not json"));
    let door = door(&native_library(WICKED, &[]));
    let host = Arc::new(ScriptedHost::new());
    let error = door.create(host, &json!({ "mode": "create-fails" })).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Config, "mode is no good"));
    assert_eq!(error.detail, json!({ "key": "mode" }));
}

#[test]
fn nothing_can_be_kept_of_nothing() {
    let empty = Conversation::new().transcript();
    let plan = block_on(wicked("never").assemble(empty, request())).unwrap();
    assert_eq!(plan, Plan::default());
}

#[test]
fn answers_given_twice_never_or_in_the_wrong_form() {
    let compact = |mode: &str| {
        let request = CompactRequest { session: session(), ..CompactRequest::default() };
        block_on(wicked(mode).compact(talk(), request)).expect_err(mode).to_string()
    };
    assert_eq!(compact("twice"), "compact was answered twice; compact_nothing came second");
    assert_eq!(compact("plan-after-delegate"), "compact was answered already; no plan may follow");
    assert!(compact("never").starts_with("compact answered nothing; call plan_keep"));
    let call_tool = |mode: &str| {
        let request = ToolCallRequest { session: session(), ..ToolCallRequest::default() };
        let error = block_on(wicked(mode).call_tool(talk(), request)).expect_err(mode);
        assert_eq!(error.kind, ErrorKind::Protocol, "{mode}");
        error.message
    };
    assert!(call_tool("bad-json").contains("call_tool answered with"));
    assert!(call_tool("other-json").contains("call_tool answered with"));
    let twice = "call_tool was answered twice; set_result_json came second";
    assert_eq!(call_tool("text-and-json"), twice);
    assert!(call_tool("never").starts_with("call_tool answered nothing"));
}

#[test]
fn a_call_that_is_given_up_comes_back() {
    let library = native_library(WICKED, &[]);
    let host = ScriptedHost::new();
    let engine = create(&library, &host, &json!({ "mode": "until-cancelled" }));
    // The scripted clock does not wait; what never comes is the engine's turn.
    let slow = std::thread::scope(|threads| {
        let first = threads.spawn(|| {
            block_on_within(Duration::from_millis(300), engine.assemble(talk(), request()))
        });
        let second =
            block_on_within(Duration::from_millis(100), engine.assemble(talk(), request()));
        assert!(second.is_none(), "one call at a time");
        first.join().unwrap()
    });
    assert!(slow.is_none_or(|answer| answer.is_err()));
}

/// On a lane, with the host's own services and a limit.
fn on_a_lane(mode: &str) -> LiveEngine {
    let spec = EngineSpec::file("wicked", &native_library(WICKED, &[]), json!({ "mode": mode }));
    let mut environment = super::environment();
    environment.timeouts.assemble_ms = 300;
    LiveEngine::open(&spec, &environment).unwrap()
}

fn assemble_on_a_lane(engine: &LiveEngine) -> Result<Plan> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(engine.assemble(talk(), request()))
}

#[test]
fn a_call_that_sleeps_past_its_limit_lets_go_of_its_thread() {
    let engine = on_a_lane("until-cancelled");
    let error = assemble_on_a_lane(&engine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
    assert!(!engine.lost_a_thread(), "its sleep ended with the call");
}

#[test]
fn a_loop_past_its_limit_costs_a_thread() {
    let engine = on_a_lane("spin");
    let error = assemble_on_a_lane(&engine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
    assert!(engine.lost_a_thread(), "nothing ends a loop");
}

/// Two calls of one engine at the same time.
fn two_at_once(engine: &EngineHandle) {
    let calls = [1, 2].map(|call| {
        let call = engine.assemble(talk(), AssembleRequest { call: CallId(call), ..request() });
        std::thread::spawn(move || block_on_within(Duration::from_secs(60), call))
    });
    for call in calls {
        call.join().unwrap().expect("both come back").unwrap();
    }
}

#[test]
fn an_engine_that_is_not_thread_safe_has_one_call_at_a_time() {
    let engine = wicked("together");
    two_at_once(&engine);
    two_at_once(&engine);
    assert_eq!(engine.status().unwrap().summary, "one at a time");
}

#[test]
fn an_engine_that_is_thread_safe_has_several() {
    let library = native_library(WICKED, &["SAFE"]);
    let engine = create(&library, &ScriptedHost::new(), &json!({ "mode": "meet" }));
    two_at_once(&engine);
}
