//! The user's requests that stay before the newest entries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{AssembleRequest, CompactRequest, Compaction, Plan, Transcript};
use ctxhost_engine_dag::DagEngine;

fn assemble(talk: &TranscriptBuilder, budget: u64, prompt: &str) -> Plan {
    let engine = EngineFactory::linked::<DagEngine>();
    let engine = engine.create(Arc::new(ScriptedHost::new()), &json!({})).unwrap();
    let request = AssembleRequest { budget, prompt: prompt.into(), ..AssembleRequest::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap()
}

fn seen(plan: &Plan, view: &Transcript) -> String {
    let texts = plan.project(view).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

/// Short requests, each with a fact, and much longer work on each with names of its own.
fn agent_talk(turns: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    for turn in 0..turns {
        let request = format!("[turn {turn}] FACT-{turn}: service s{turn} listens on 1{turn:03}.");
        if turn % 6 == 5 {
            talk.image(&request)
        } else {
            talk.user(&request)
        };
        for round in 0..2 {
            let id = format!("{turn}-{round}");
            let words = |name: &str| format!("{name}_{} ", turn * 31 + round * 7);
            let output: String = ["ledger", "branch", "socket", "parser"].map(words).concat();
            talk.calls(&[(&id, "read_part", r#"{"n":1}"#)]);
            talk.result(&id, "read_part", &output.repeat(12));
        }
        talk.assistant(&format!("Part {turn} names ledger_{turn} and branch_{turn}."));
    }
    talk
}

#[test]
fn short_requests_stay_before_names_of_outputs() {
    let mut talk = agent_talk(40);
    talk.user("And now?");
    let plan = assemble(&talk, 10_000, "And now?");
    let text = seen(&plan, &talk.transcript());
    let missing: Vec<u64> =
        (0..40).filter(|turn| !text.contains(&format!("FACT-{turn}:"))).collect();
    assert!(missing.is_empty(), "{missing:?} at {} tokens", plan.estimated_tokens);
    assert_eq!(plan_fault(&plan, &talk.transcript()), None);
}

#[test]
fn a_long_request_in_which_nothing_is_found_keeps_its_ends() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me with the contract.").assistant("Gladly, send it.");
    let clauses: Vec<String> =
        (0..900).map(|clause| format!("Clause {clause}: the tenant pays in advance.")).collect();
    talk.user(&clauses.join("\n")).assistant("I have read it.").user("Hm, well, ok so far");
    let plan = assemble(&talk, 8_000, "Hm, well, ok so far");
    let text = seen(&plan, &talk.transcript());
    assert!(text.contains("Clause 0:") && text.contains("Clause 899:"), "{text}");
    assert!(plan.estimated_tokens > 4_000, "{}", plan.estimated_tokens);
}

#[test]
fn a_compaction_keeps_short_requests() {
    let talk = agent_talk(40);
    let view = talk.transcript();
    let engine = EngineFactory::linked::<DagEngine>();
    let engine = engine.create(Arc::new(ScriptedHost::new()), &json!({})).unwrap();
    let current_tokens = view.total_tokens();
    let request = CompactRequest { budget: 16_000, current_tokens, ..CompactRequest::default() };
    let Compaction::Plan(plan) = block_on(engine.compact(view.clone(), request)).unwrap() else {
        panic!("a compaction of {current_tokens} tokens");
    };
    let text = seen(&plan, &view);
    let missing: Vec<u64> =
        (0..40).filter(|turn| !text.contains(&format!("FACT-{turn}:"))).collect();
    assert!(missing.len() <= 10, "{missing:?} at {} tokens", plan.estimated_tokens);
    assert_eq!(plan_fault(&plan, &view), None);
}
