//! Mistakes of C engines are errors that name them, and affect no other call.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine::{EngineInstance, EngineSpec};
use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, block_on_within};
use ctxhost_engine_api::*;
use ctxhost_tests::native::native_library;
use serde_json::json;

use super::c_door::{create, door, session, talk};

const WICKED: &str = "tests/fixtures/c/wicked.c";

fn refused(macros: &[&str], says: &str) {
    let spec = EngineSpec::file("wicked", &native_library(WICKED, macros), json!({}));
    let error = EngineInstance::open(&spec, &super::environment()).unwrap_err().to_string();
    assert!(error.contains(says), "{macros:?}: {error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_table_that_is_none() {
    refused(&["NO_TABLE"], "its table does not match ctxhost_engine.h (the table is NULL)");
    refused(&["SHORT"], "the table has struct_size 40; at least");
    refused(&["HUGE_SIZE"], "the table has struct_size 18446744073709551615");
    refused(&["NO_CREATE"], "create is NULL");
    refused(&["NO_ASSEMBLE"], "assemble is NULL");
    refused(&["NO_COMPACT"], "compact is NULL; implement it, or set CTXHOST_DELEGATES_COMPACTION");
    refused(&["NO_NAME"], "its name is empty");
    refused(&["TORN_NAME"], "its name: a text is not UTF-8 from byte 5 on");
    refused(&["NO_NEEDS"], "its list of 1 needs is invalid");
    refused(&["NO_SYMBOL"], "does not export context_engine_c_v1");
    refused(&["OTHER_ID"], "calls itself \"innocent\" but its metadata says \"wicked\"");
}

#[test]
fn another_machine() {
    let library = native_library(WICKED, &["SAFE"]);
    let bytes = std::fs::read(&library).unwrap();
    let ours = format!("target={}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let theirs = ours.replace(std::env::consts::ARCH, &"x".repeat(std::env::consts::ARCH.len()));
    let at = memchr::memmem::find(&bytes, ours.as_bytes()).unwrap();
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
    wrong("null-text", "a text of 9 bytes is at NULL");
    wrong("backward", "assemble names 2..1 of 6 entries");
    wrong("past-the-end", "assemble names 0..7 of 6 entries");
    wrong("replace-past-the-end", "of 6 entries");
    wrong("bad-role", "role 1 is neither user nor assistant");
    wrong("bad-extras", "invalid JSON");
    wrong("wrong-setter", "set_count does not answer assemble");
    wrong("no-compaction", "compact_delegate does not answer assemble");
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
    let empty = TranscriptBuilder::new().transcript();
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
fn on_an_engine_thread(mode: &str) -> EngineInstance {
    let spec = EngineSpec::file("wicked", &native_library(WICKED, &[]), json!({ "mode": mode }));
    let mut environment = super::environment();
    environment.timeouts.assemble_ms = 300;
    EngineInstance::open(&spec, &environment).unwrap()
}

fn assemble_on_an_engine_thread(engine: &EngineInstance) -> Result<Plan> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(engine.assemble(talk(), request()))
}

#[test]
fn a_call_that_sleeps_past_its_limit_lets_go_of_its_thread() {
    let engine = on_an_engine_thread("until-cancelled");
    let error = assemble_on_an_engine_thread(&engine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
    assert!(!engine.has_lost_thread(), "its sleep ended with the call");
}

#[test]
fn a_loop_past_its_limit_costs_a_thread() {
    let engine = on_an_engine_thread("spin");
    let error = assemble_on_an_engine_thread(&engine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
    assert!(engine.has_lost_thread(), "nothing ends a loop");
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
