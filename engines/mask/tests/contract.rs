//! Contract tests of the `mask` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::{
    ContractOptions, ScriptedHost, TranscriptBuilder, block_on, contract,
};
use ctxhost_engine_api::{AssembleRequest, ErrorKind, Plan, Result};
use ctxhost_engine_mask::MaskEngine;
use proptest::prelude::*;

const AMPLE: u64 = 1_000_000;

fn create(config: Value) -> Result<EngineHandle> {
    EngineFactory::linked::<MaskEngine>().create(Arc::new(ScriptedHost::new()), &config)
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

fn cost(plan: &Plan, talk: &TranscriptBuilder) -> u64 {
    plan.project(&talk.transcript()).iter().map(|item| item.tokens()).sum()
}

fn masked(plan: &Plan, talk: &TranscriptBuilder) -> usize {
    seen(plan, talk).iter().filter(|text| text.starts_with("[old output left out")).count()
}

/// Reads file after file, `from..to`.
fn reads(talk: &mut TranscriptBuilder, from: usize, to: usize) {
    for number in from..to {
        let (call, path) = (format!("c{number}"), format!(r#"{{"path":"src/{number}.rs"}}"#));
        talk.calls(&[(&call, "read", &path)]);
        talk.result(&call, "read", &"let it = be;\n".repeat(30));
    }
}

fn reading(results: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("read everything");
    reads(&mut talk, 0, results);
    talk
}

#[test]
fn keeps_the_contract() {
    let tight =
        json!({ "keep_results": 0, "min_keep_results": 0, "batch_results": 1, "slack_share": 0.0 });
    for config in [json!({}), tight, json!({ "leave_out_note": false })] {
        let options = ContractOptions { config, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<MaskEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn a_mask_names_tool_arguments_status_and_size() {
    let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(200));
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("a", "bash", &long), ("b", "ls", "{}")]);
    talk.result("a", "bash", &"línea\n".repeat(100)).failure("b", "ls", &"no\n".repeat(100));
    talk.assistant("done");
    let config = json!({ "keep_results": 0, "min_keep_results": 0, "batch_results": 1 });
    let plan = assemble(&create(config).unwrap(), &talk, AMPLE);
    let seen = seen(&plan, &talk);
    let command = "x".repeat(99);
    assert_eq!(
        seen[2],
        format!("[old output left out: bash {command}… -> ok, 100 lines, 600 chars]")
    );
    assert_eq!(seen[3], "[old output left out: ls -> error, 100 lines, 300 chars]");
    let notes: Vec<_> = plan.ops.iter().filter_map(|op| op.note.clone()).collect();
    assert_eq!((notes[1].layer.as_str(), notes[1].detail.as_str()), ("mask", "300 → 56 chars"));
}

#[test]
fn a_mask_keeps_names_that_the_model_used() {
    let mut talk = TranscriptBuilder::new();
    let noise = (0..40).map(|n| format!("lib/part{n}.rs\n")).collect::<String>();
    talk.user("go").calls(&[("a", "ls", "{}")]);
    talk.result("a", "ls", &format!("{noise}src/parser.rs\n{noise}"));
    talk.assistant("src/parser.rs is the one.");
    let config = json!({ "keep_results": 0, "min_keep_results": 0, "batch_results": 1 });
    let shown = |config| seen(&assemble(&create(config).unwrap(), &talk, AMPLE), &talk)[2].clone();
    let line = shown(config);
    // The name that the model took up is in the line, although many others precede it.
    assert!(line.contains("; names: src/parser.rs "), "{line}");
    let config =
        json!({ "keep_results": 0, "min_keep_results": 0, "batch_results": 1, "name_chars": 0 });
    assert!(!shown(config).contains("names:"));
}

#[test]
fn dropped_turns_leave_their_names() {
    let engine = create(json!({})).unwrap();
    let mut talk = TranscriptBuilder::new();
    talk.user("start").assistant("The entry point is src/special_entry.rs.");
    for number in 0..60 {
        talk.user(&format!("question {number} {}", "why ".repeat(50))).assistant("because");
    }
    let plan = assemble(&engine, &talk, 1_000);
    assert!(seen(&plan, &talk).concat().contains("files: src/special_entry.rs"));
    assert_eq!(cost(&plan, &talk), plan.estimated_tokens);
    assert!(cost(&plan, &talk) <= 1_000);
    let off = create(json!({ "ledger_share": 0.0 })).unwrap();
    assert!(!seen(&assemble(&off, &talk, 1_000), &talk).concat().contains("special_entry"));
}

#[test]
fn masks_whole_batches_of_what_is_old() {
    let engine = create(json!({})).unwrap();
    let counts: Vec<usize> = (0..45)
        .map(|results| {
            let talk = reading(results);
            masked(&assemble(&engine, &talk, AMPLE), &talk)
        })
        .collect();
    assert_eq!((counts[19], counts[20], counts[29], counts[30], counts[44]), (0, 10, 10, 20, 30));
}

#[test]
fn what_was_masked_stays_byte_for_byte() {
    let engine = create(json!({})).unwrap();
    let mut talk = reading(24);
    let before = seen(&assemble(&engine, &talk, AMPLE), &talk);
    reads(&mut talk, 24, 28);
    let after = seen(&assemble(&engine, &talk, AMPLE), &talk);
    assert_eq!(after[..before.len()], before);
}

#[test]
fn one_request_with_less_room_costs_later_ones_nothing() {
    let talk = reading(9);
    let total = talk.transcript().total_tokens();
    let engine = create(json!({})).unwrap();
    let whole = assemble(&engine, &talk, total * 2);
    let tight = assemble(&engine, &talk, total / 2);
    assert!(masked(&whole, &talk) == 0 && masked(&tight, &talk) > 0);
    assert_eq!(assemble(&engine, &talk, total * 2), whole);
    assert_eq!(assemble(&engine, &talk, total / 2), tight);
    // Within one budget the prefix stays.
    assert_eq!(assemble(&engine, &talk, total - 1), tight);
}

#[test]
fn pressure_masks_down_to_the_fewest_before_any_turn_goes() {
    let talk = reading(9);
    let total = talk.transcript().total_tokens();
    let engine = create(json!({})).unwrap();
    let plan = assemble(&engine, &talk, total - 1);
    let few = masked(&plan, &talk);
    assert!((1..7).contains(&few), "{few}");
    assert!(cost(&plan, &talk) < total);
    assert_eq!(seen(&plan, &talk).len() as u64, talk.len());
    let plan = assemble(&engine, &talk, total);
    assert_eq!(masked(&plan, &talk), few, "a mask is never taken off");
    let plan = assemble(&engine, &talk, total / 2);
    assert!(masked(&plan, &talk) > few);
    assert!(cost(&plan, &talk) <= total / 2);
    assert_eq!(seen(&plan, &talk).len() as u64, talk.len());
}

#[test]
fn turns_go_when_masks_are_not_enough() {
    let mut talk = reading(9);
    for number in 0..20 {
        talk.user(&format!("question {number} {}", "why ".repeat(50))).assistant("because");
    }
    let plan = assemble(&create(json!({})).unwrap(), &talk, 300);
    assert!(cost(&plan, &talk) <= 300);
    assert_eq!(cost(&plan, &talk), plan.estimated_tokens);
    let seen = seen(&plan, &talk);
    assert_eq!(seen[0], "read everything");
    assert!(seen[1].ends_with("earlier entries left out]"), "{}", seen[1]);
}

#[test]
fn the_live_round_is_never_masked() {
    let mut talk = TranscriptBuilder::new();
    let calls: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    talk.user("all at once");
    talk.calls(&calls.iter().map(|id| (id.as_str(), "read", "{}")).collect::<Vec<_>>());
    for call in &calls {
        talk.result(call, "read", &"long ".repeat(100));
    }
    let config = json!({ "keep_results": 0, "min_keep_results": 0, "batch_results": 1 });
    let engine = create(config).unwrap();
    assert_eq!(masked(&assemble(&engine, &talk, 10), &talk), 0);
    talk.assistant("read them");
    assert_eq!(masked(&assemble(&engine, &talk, AMPLE), &talk), 12);
}

#[test]
fn a_wrong_setting_is_named() {
    for (config, word) in [
        (json!({ "slack_share": -0.1 }), "slack_share"),
        (json!({ "batch_results": 0 }), "batch_results"),
        (json!({ "keep_results": 1 }), "min_keep_results"),
        (json!({ "keep": 3 }), "keep"),
    ] {
        let error = create(config).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config);
        assert!(error.message.contains(word), "{error}");
    }
}

/// A talk with late results, results without a call and calls without a result.
fn add_step(talk: &mut TranscriptBuilder, number: usize, (kind, size): (u8, usize)) {
    let text = format!("step {number} in src/part{number}.rs ").repeat(size);
    let (call, other) = (format!("a{number}"), format!("b{number}"));
    let late = |letter: &str| format!("{letter}{}", number.saturating_sub(size));
    match kind {
        0 => talk.user(&text),
        1 => talk.assistant(&text),
        2 => talk.calls(&[(&call, "read", "{}"), (&other, "read", "{}")]),
        3 => talk.result(&late("a"), "read", &text),
        _ => talk.result(&late("b"), "read", &text),
    };
}

#[test]
fn results_without_a_call_survive_a_restart() {
    let steps = [(1, 1), (0, 1), (3, 9), (4, 9), (3, 9)];
    for budget in [10, 60, 111, 150] {
        assert_same_after_restart(&steps, budget);
    }
}

/// Runs a session step by step, then opens it again with the stored values.
fn assert_same_after_restart(steps: &[(u8, usize)], budget: u64) {
    let config = json!({ "min_keep_results": 1, "keep_results": 2, "batch_results": 1 });
    let host = Arc::new(ScriptedHost::new());
    let open = || EngineFactory::linked::<MaskEngine>().create(host.clone(), &config).unwrap();
    let live = open();
    let mut talk = TranscriptBuilder::new();
    let mut before = None;
    for (number, step) in steps.iter().enumerate() {
        add_step(&mut talk, number, *step);
        before = Some(seen(&assemble(&live, &talk, budget), &talk));
    }
    assert_eq!(Some(seen(&assemble(&open(), &talk, budget), &talk)), before);
}

proptest! {
    #[test]
    fn a_restart_changes_no_plan(
        steps in prop::collection::vec((0u8..5, 1usize..12), 1..40), budget in 10u64..3_000,
    ) {
        assert_same_after_restart(&steps, budget);
    }
}
