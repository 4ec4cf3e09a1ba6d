//! The layers combined in one request.

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Action, AssembleRequest, ErrorKind, ModelRef, Plan, PromptCache, Role};
use ctxhost_engine_legacy::LegacyEngine;
use serde_json::json;

use crate::fixtures::{assemble, engine, offline};

fn request(window_tokens: u64) -> AssembleRequest {
    let model = ModelRef { window_tokens, ..ModelRef::default() };
    AssembleRequest { model, budget: window_tokens / 2, ..AssembleRequest::default() }
}

fn session() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for _ in 0..12 {
        talk.user("go").calls(&[("1", "exec", "{}")]).result("1", "exec", &"x".repeat(20_000));
        talk.assistant("done");
    }
    talk
}

#[test]
fn what_is_small_is_kept_in_one_piece() {
    let mut talk = TranscriptBuilder::new();
    talk.user("hello").assistant("hi");
    let engine = engine(&offline(), &json!({}));
    let plan = assemble(&engine, &talk.transcript(), request(200_000)).unwrap();
    assert_eq!(plan, Plan { estimated_tokens: 3, ..Plan::keep_all(2) });
}

#[test]
fn a_small_window_warns_once_and_a_smaller_one_is_refused() {
    let host = offline();
    let engine = engine(&host, &json!({}));
    let transcript = session().transcript();
    for _ in 0..3 {
        let plan = assemble(&engine, &transcript, request(20_000)).unwrap();
        assert_eq!(plan.extras.notes[0].layer, "window guard");
    }
    assert_eq!(host.log_lines().len(), 1);
    let error = assemble(&engine, &transcript, request(8_000)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WindowTooSmall);
}

#[test]
fn pruning_and_the_guard_share_the_results_between_them() {
    let host = offline();
    host.set_prompt_cache(PromptCache { last_touch_ms: Some(0), ..PromptCache::default() });
    let engine = engine(&host, &json!({"pruning": {"mode": "cache-ttl"}}));
    let transcript = session().transcript();
    let cold = AssembleRequest { now_ms: 300_000, ..request(64_000) };
    let plan = assemble(&engine, &transcript, cold).unwrap();
    let layers = |plan: &Plan| -> Vec<String> {
        plan.ops.iter().filter_map(|op| Some(op.note.as_ref()?.layer.clone())).collect()
    };
    assert_eq!(layers(&plan).iter().filter(|layer| *layer == "pruning").count(), 11);
    assert_eq!(layers(&plan).last().map(String::as_str), Some("tool-result guard"));
    let warm = AssembleRequest { now_ms: 300_001, ..request(64_000) };
    assert_eq!(assemble(&engine, &transcript, warm).unwrap(), plan, "replayed");
}

#[test]
fn every_call_keeps_its_result_and_every_role_its_place() {
    let engine = engine(&offline(), &json!({}));
    let transcript = session().transcript();
    let plan = assemble(&engine, &transcript, request(32_000)).unwrap();
    let roles: Vec<Role> = plan.project(&transcript).iter().map(|item| item.role()).collect();
    let original: Vec<Role> = transcript.iter().map(|entry| entry.role()).collect();
    assert_eq!(roles, original);
    assert!(plan.ops.iter().any(|op| matches!(op.action, Action::ReplaceText { .. })));
    assert!(plan.estimated_tokens < transcript.total_tokens());
}

#[test]
fn a_wrong_setting_stops_the_engine_at_its_door() {
    let door = EngineFactory::linked::<LegacyEngine>();
    let config = json!({"prunning": {}});
    let error = door.create(Arc::new(offline()), &config).unwrap_err();
    assert_eq!(error.detail["key"], "prunning");
    assert!(error.message.contains("did you mean \"pruning\"?"));
}
