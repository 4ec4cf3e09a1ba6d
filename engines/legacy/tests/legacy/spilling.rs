//! Large results as blobs: stored once, named in the notice, and not lost on failure.

use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    Action, AssembleRequest, LogLevel, ModelRef, Plan, SessionRef, Transcript, capability,
};
use serde_json::{Value, json};

use crate::fixtures::{assemble, compact, engine, offline, planned, request};

const LARGE_CHARS: usize = 9_000;

fn with_blobs() -> ScriptedHost {
    let host = offline();
    host.set_capabilities(&[capability::KV, capability::BLOB]);
    host
}

fn spilling() -> Value {
    json!({"tool_results": {"spill_chars": 4_000}})
}

fn session() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("a", "exec", "{}"), ("b", "exec", "{}")]);
    talk.result("a", "exec", &"x".repeat(LARGE_CHARS)).result("b", "exec", &"y".repeat(3_000));
    talk
}

fn ask() -> AssembleRequest {
    AssembleRequest {
        session: SessionRef { id: "s".into(), ..SessionRef::default() },
        model: ModelRef { window_tokens: 200_000, ..ModelRef::default() },
        budget: 150_000,
        ..AssembleRequest::default()
    }
}

fn replaced(plan: &Plan) -> Vec<(u64, &str)> {
    let text = |op: &'_ ctxhost_engine_api::Op| match &op.action {
        Action::ReplaceText { seq, .. } => Some(*seq),
        _ => None,
    };
    let with_text = plan.ops.iter().filter_map(|op| Some((text(op)?, op)));
    with_text
        .map(|(seq, op)| match &op.action {
            Action::ReplaceText { text, .. } => (seq, text.as_str()),
            _ => (seq, ""),
        })
        .collect()
}

/// The handle in a notice.
fn handle_in(text: &str) -> &str {
    let (_, rest) = text.split_once("of the session and file ").expect(text);
    rest.split(' ').next().unwrap()
}

#[test]
fn a_large_result_is_put_away_and_its_notice_names_the_handle() {
    let host = with_blobs();
    let plan = assemble(&engine(&host, &spilling()), &session().transcript(), ask()).unwrap();
    let shown = replaced(&plan);
    assert_eq!(shown.len(), 1, "the smaller one stays: {:?}", plan.ops);
    let (seq, text) = shown[0];
    assert!(seq == 2 && text.chars().count() <= 4_000, "{seq}: {} chars", text.len());
    let bytes = block_on(host.handle().blob_get(handle_in(text))).unwrap().unwrap();
    assert_eq!(bytes, "x".repeat(LARGE_CHARS).into_bytes());
}

#[test]
fn off_by_default_nothing_is_put_away() {
    let host = with_blobs();
    let plan = assemble(&engine(&host, &json!({})), &session().transcript(), ask()).unwrap();
    assert!(replaced(&plan).is_empty() && host.kv().is_empty(), "{:?}", plan.ops);
}

#[test]
fn a_restart_shows_the_same_bytes() {
    let host = with_blobs();
    let transcript = session().transcript();
    let before = assemble(&engine(&host, &spilling()), &transcript, ask()).unwrap();
    let after = assemble(&engine(&host, &spilling()), &transcript, ask()).unwrap();
    assert_eq!(before, after);
}

#[test]
fn without_a_store_the_session_alone_keeps_the_original() {
    let host = offline();
    let plan = assemble(&engine(&host, &spilling()), &session().transcript(), ask()).unwrap();
    assert!(replaced(&plan).is_empty(), "{:?}", plan.ops);
    assert!(host.log_lines().iter().all(|line| line.level != LogLevel::Warn));
}

/// One turn that consists mostly of results.
fn crowded() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("go");
    for round in 0..6 {
        let id = round.to_string();
        talk.calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"z".repeat(40_000));
    }
    talk.transcript()
}

#[test]
fn what_a_compaction_cuts_for_good_is_put_away_before() {
    let host = with_blobs();
    let plan = planned(&engine(&host, &spilling()), &crowded(), request(12_000, 3));
    let shown = replaced(&plan);
    assert!(!shown.is_empty(), "{:?}", plan.ops);
    for (_, text) in shown {
        let bytes = block_on(host.handle().blob_get(handle_in(text))).unwrap().unwrap();
        assert_eq!(bytes.len(), 40_000);
    }
    let plain = compact(&engine(&with_blobs(), &json!({})), &crowded(), request(12_000, 3));
    assert!(!format!("{plain:?}").contains("of the session and file"));
}
