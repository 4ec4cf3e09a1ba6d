//! Contract tests of the `window` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::{
    ContractOptions, ScriptedHost, TranscriptBuilder, block_on, contract,
};
use ctxhost_engine_api::{AssembleRequest, ErrorKind, Plan, Result};
use ctxhost_engine_window::WindowEngine;

fn create(config: Value) -> Result<EngineHandle> {
    EngineFactory::linked::<WindowEngine>().create(Arc::new(ScriptedHost::new()), &config)
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64) -> Plan {
    let request = AssembleRequest { budget, ..AssembleRequest::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap()
}

/// The texts of the messages that the model sees.
fn seen(plan: &Plan, talk: &TranscriptBuilder) -> Vec<String> {
    let transcript = talk.transcript();
    plan.project(&transcript).iter().map(|item| item.text().into_owned()).collect()
}

fn chat(turns: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..turns {
        talk.user(&format!("question {turn}")).assistant(&format!("answer {turn}"));
    }
    talk
}

#[test]
fn keeps_the_contract() {
    let config = json!({ "keep_first_task": true, "leave_out_note": true, "slack_share": 0.25 });
    for config in [json!({}), config, json!({ "leave_out_note": false, "slack_share": 0.0 })] {
        let options = ContractOptions { config, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<WindowEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn the_task_a_note_and_the_newest_turns_stay() {
    let talk = chat(10);
    let plan = assemble(&create(json!({ "request_share": 0.0 })).unwrap(), &talk, 32);
    let seen = seen(&plan, &talk);
    assert_eq!(seen[..3], ["question 0", "[13 earlier entries left out]", "question 7"]);
    assert_eq!(seen.len(), 8);
    let note = plan.ops.iter().find_map(|op| op.note.clone()).unwrap();
    assert_eq!((note.layer.as_str(), note.detail.as_str()), ("window", "13 entries, 32 tokens"));
}

#[test]
fn a_restart_changes_no_plan() {
    let host = Arc::new(ScriptedHost::new());
    let open = || EngineFactory::linked::<WindowEngine>().create(host.clone(), &json!({})).unwrap();
    let live = open();
    let mut moved = 0;
    for turns in 2..40 {
        let talk = chat(turns);
        let plan = assemble(&live, &talk, 60);
        moved += u64::from(plan != assemble(&create(json!({})).unwrap(), &talk, 60));
        assert_eq!(assemble(&open(), &talk, 60), plan, "after {turns} turns");
    }
    // Without its store an engine would cut elsewhere.
    assert!(moved > 0);
}

#[test]
fn requests_stay_in_front_of_the_newest_turns() {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..40 {
        talk.user(&format!("question {turn}")).assistant(&"a long answer ".repeat(20)).user("ok");
    }
    let plan = assemble(&create(json!({})).unwrap(), &talk, 1_000);
    let seen = seen(&plan, &talk);
    let asked = |turn: u64| seen.contains(&format!("question {turn}"));
    // A tenth of the budget holds all questions, but no assents.
    assert!((0..40).all(asked), "{seen:?}");
    assert!(seen.iter().filter(|text| *text == "ok").count() < 12, "{seen:?}");
    assert!(plan.estimated_tokens <= 1_000);
}

#[test]
fn the_note_can_be_left_off() {
    let talk = chat(10);
    let engine = create(json!({ "leave_out_note": false, "slack_share": 0.0 })).unwrap();
    let plan = assemble(&engine, &talk, 13);
    assert_eq!(
        seen(&plan, &talk),
        ["question 0", "question 8", "answer 8", "question 9", "answer 9"]
    );
}

#[test]
fn the_prefix_stays_while_the_cut_stays() {
    let engine = create(json!({})).unwrap();
    let mut talk = chat(200);
    let before = seen(&assemble(&engine, &talk, 400), &talk);
    talk.user("one more").assistant("yes");
    let after = seen(&assemble(&engine, &talk, 400), &talk);
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 2);
}

#[test]
fn a_wrong_setting_is_named() {
    for (config, word) in [
        (json!({ "slack_share": 1.5 }), "slack_share"),
        (json!({ "slack": 0.5 }), "slack"),
        (json!({ "request_share": 0.6 }), "request_share"),
        (json!({ "keep_first_task": "yes" }), "boolean"),
    ] {
        let error = create(config).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains(word), "{error}");
    }
}
