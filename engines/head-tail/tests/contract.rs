//! Contract and property tests of the `head-tail` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::testing::{
    ContractOptions, ScriptedHost, TranscriptBuilder, block_on, contract, plan_fault,
};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, Flags, ModelRef, Plan, PlanItem, Transcript,
};
use ctxhost_engine_head_tail::HeadTailEngine;
use proptest::prelude::*;

/// Notes as a model writes them.
const NOTES: &str = "## Goal\n- go on\n## Progress\n### Done\n- all\n### In Progress\n- None.\n### Blocked\n- None.\n## Key Decisions\n- None.\n## Next Steps\n- more\n## Critical Context\n- None.\n### Exact identifiers\n- None.";

fn engine(config: Value) -> EngineHandle {
    let host = ScriptedHost::new();
    host.answer_always(NOTES);
    EngineFactory::linked::<HeadTailEngine>().create(Arc::new(host), &config).unwrap()
}

/// Settings under which even the smallest transcript is pruned and compacted.
fn eager() -> Value {
    json!({
        "threshold_share": 0.3, "tail_messages": 1, "head_messages": 1, "prune_result_chars": 10,
        "prune_arguments_chars": 10, "keep_argument_chars": 5, "prune_batch_share": 0.01,
        "threshold_min_tokens": 0,
    })
}

#[test]
fn keeps_the_contract() {
    let offline = json!({ "use_model": false, "head_messages": 0 });
    for (config, completion) in
        [(json!({}), Some("no notes at all")), (eager(), Some(NOTES)), (offline, None)]
    {
        let completion = completion.map(str::to_owned);
        let options = ContractOptions { config, completion, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<HeadTailEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

fn assembled(engine: &EngineHandle, transcript: &Transcript, budget: u64) -> Plan {
    let model = ModelRef { window_tokens: budget * 2, ..ModelRef::default() };
    let request = AssembleRequest { budget, model, ..AssembleRequest::default() };
    block_on(engine.assemble(transcript.clone(), request)).unwrap()
}

fn compacted(engine: &EngineHandle, transcript: &Transcript, budget: u64) -> Option<Plan> {
    let model = ModelRef { window_tokens: budget * 2, ..ModelRef::default() };
    let request = CompactRequest { budget, model, attempt: 1, ..CompactRequest::default() };
    match block_on(engine.compact(transcript.clone(), request)).unwrap() {
        Compaction::Plan(plan) => Some(plan),
        _ => None,
    }
}

#[test]
fn one_request_with_less_room_costs_later_ones_nothing() {
    let mut talk = TranscriptBuilder::new();
    talk.user("read them");
    for number in 0..12 {
        let id = format!("c{number}");
        talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"text ".repeat(800));
    }
    let transcript = talk.transcript();
    let engine = engine(json!({}));
    let whole = assembled(&engine, &transcript, 100_000);
    assert_eq!(whole.estimated_tokens, transcript.total_tokens());
    let tight = assembled(&engine, &transcript, 8_000);
    assert!(tight.estimated_tokens < 8_000);
    assert_eq!(assembled(&engine, &transcript, 100_000), whole);
    assert_eq!(assembled(&engine, &transcript, 8_000), tight);
    // Within about one budget the prefix stays.
    assert_eq!(assembled(&engine, &transcript, 14_000), tight);
}

fn cost(plan: &Plan, transcript: &Transcript) -> u64 {
    plan.project(transcript).iter().map(PlanItem::tokens).sum()
}

/// Positions that a plan keeps word for word.
fn word_for_word(plan: &Plan, transcript: &Transcript) -> Vec<u64> {
    let items = plan.project(transcript);
    let kept = items.iter().filter(|item| matches!(item, PlanItem::Kept(_)));
    kept.filter_map(|item| Some(item.entry()?.seq())).collect()
}

/// Checks that frames are whole and protected entries are kept.
fn holds_what_must_stay(plan: &Plan, transcript: &Transcript) {
    let items = plan.project(transcript);
    let shown: Vec<u64> = items.iter().filter_map(|item| Some(item.entry()?.seq())).collect();
    for frame in transcript.iter().filter(|entry| entry.is_cut_point()) {
        let end = transcript.cut_at_or_after(frame.seq() + 1);
        let count = shown.iter().filter(|seq| (frame.seq()..end).contains(seq)).count() as u64;
        assert!(count == 0 || count == end - frame.seq(), "a cut in {}..{end}", frame.seq());
    }
    let exact = word_for_word(plan, transcript);
    for entry in transcript.iter().filter(|entry| entry.has(Flags::PINNED)) {
        assert!(exact.contains(&entry.seq()), "pinned {} went", entry.seq());
    }
    if let Some(newest) = transcript.newest_user_message() {
        assert!(exact.contains(&newest.seq()), "the newest request went");
    }
    // A result without its call can never be sent and is not part of the live round.
    if let Some(last) = transcript.iter().rev().find(|entry| !entry.has(Flags::ORPHAN)) {
        assert!(shown.contains(&last.frame()), "the trailing frame went");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn plans_are_sound_for_any_transcript(generated in transcripts(), share in 1u64..12) {
        let transcript = generated.transcript();
        let budget = transcript.total_tokens() * share / 8 + 1;
        let engine = engine(eager());
        let plan = assembled(&engine, &transcript, budget);
        prop_assert_eq!(plan_fault(&plan, &transcript), None);
        prop_assert_eq!(cost(&plan, &transcript), plan.estimated_tokens);
        holds_what_must_stay(&plan, &transcript);
        prop_assert_eq!(plan, assembled(&engine, &transcript, budget));
    }

    #[test]
    fn compactions_get_smaller_and_keep_what_must_stay(
        generated in transcripts(), share in 1u64..12, uses_model: bool,
    ) {
        let transcript = generated.transcript();
        let budget = transcript.total_tokens() * share / 8 + 1;
        let mut config = eager();
        config["use_model"] = json!(uses_model);
        let engine = engine(config);
        if let Some(plan) = compacted(&engine, &transcript, budget) {
            prop_assert_eq!(plan_fault(&plan, &transcript), None);
            holds_what_must_stay(&plan, &transcript);
            prop_assert!(cost(&plan, &transcript) < transcript.total_tokens());
            prop_assert_eq!(cost(&plan, &transcript), plan.estimated_tokens);
        }
    }

    #[test]
    fn a_growing_session_keeps_its_pruned_bytes(generated in transcripts()) {
        let engine = engine(eager());
        let whole = generated.transcript();
        let budget = whole.total_tokens() / 2 + 1;
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
        let mut lines: Vec<(u64, String)> = Vec::new();
        for entry in generated.entries {
            log.append(entry);
            let transcript = log.snapshot();
            let plan = assembled(&engine, &transcript, budget);
            let items = plan.project(&transcript);
            let text_at = |seq: u64| items.iter().find_map(|item| {
                (item.entry()?.seq() == seq).then(|| item.text().into_owned())
            });
            for (seq, text) in &lines {
                let shown = text_at(*seq);
                prop_assert_eq!(shown.as_ref(), Some(text));
            }
            lines = items.iter().filter_map(|item| match item {
                PlanItem::ReplacedText { entry, text } => Some((entry.seq(), (*text).to_owned())),
                _ => None,
            }).collect();
        }
    }
}

#[test]
fn a_long_argument_in_the_newest_frame_is_cut() {
    let write = |number: u64, words: usize| {
        format!(r#"{{"path":"src/{number}.rs","content":"{}"}}"#, "let it; ".repeat(words))
    };
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    for number in 0..8 {
        let id = format!("c{number}");
        talk.calls(&[(&id, "write", &write(number, 100))]).result(&id, "write", "done");
    }
    talk.calls(&[("new", "write", &write(99, 4_000))]).result("new", "write", "done");
    let engine = engine(json!({ "use_model": false }));
    let plan = compacted(&engine, &talk.transcript(), 4_000).unwrap();
    assert!(plan.estimated_tokens <= 3_600, "{}", plan.estimated_tokens);
}
