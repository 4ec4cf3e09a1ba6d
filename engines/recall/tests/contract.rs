//! Contract tests of the `recall` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::testing::{
    ContractOptions, ScriptedHost, TranscriptBuilder, block_on, contract, plan_fault,
};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, HistoryEntry, Plan, ToolCallRequest,
};
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};
use ctxhost_engine_recall::RecallEngine;
use proptest::prelude::*;

#[test]
fn keeps_the_contract() {
    let tight = json!({ "slack_share": 0.0, "agent_tail_share": 0.05, "full_share": 0.05 });
    for config in [json!({}), tight, json!({ "leave_out_note": false, "tools": false })] {
        let options = ContractOptions { config, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<RecallEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

const BUDGET: u64 = 2_000;

fn create() -> EngineHandle {
    let door = EngineFactory::linked::<RecallEngine>();
    door.create(Arc::new(ScriptedHost::new()), &json!({})).unwrap()
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64, prompt: &str) -> Plan {
    let request = AssembleRequest { budget, prompt: prompt.into(), ..AssembleRequest::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap()
}

fn seen(plan: &Plan, talk: &TranscriptBuilder) -> String {
    let transcript = talk.transcript();
    let texts = plan.project(&transcript).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

fn cost(plan: &Plan, talk: &TranscriptBuilder) -> u64 {
    plan.project(&talk.transcript()).iter().map(|item| item.tokens()).sum()
}

/// Small talk, with one fact, one rule and its change far back.
fn long_talk() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me plan the year.").assistant("Gladly.");
    talk.user("My sister Irene keeps a saffron farm near Teruel.").assistant("Lovely.");
    talk.user("Always book trains with the carrier AVE-1.").assistant("Understood.");
    talk.user("From now on book trains with the carrier OUI-2 instead.").assistant("Noted.");
    for number in 0..200 {
        talk.user(&format!("What about week {number} and its errands?"));
        talk.assistant(
            &format!("Week {number} has room for a walk and some reading at home. ").repeat(4),
        );
    }
    talk
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
    let plan = assemble(&create(), &talk, 10_000, "And now?");
    let text = seen(&plan, &talk);
    let missing: Vec<u64> =
        (0..40).filter(|turn| !text.contains(&format!("FACT-{turn}:"))).collect();
    assert!(missing.is_empty(), "{missing:?} at {} tokens", plan.estimated_tokens);
    assert_eq!(plan_fault(&plan, &talk.transcript()), None);
    assert_eq!(cost(&plan, &talk), plan.estimated_tokens);
}

#[test]
fn a_request_with_an_image_takes_no_room_of_others() {
    let engine = create();
    for turns in 1..40 {
        let talk = agent_talk(turns);
        let plan = assemble(&engine, &talk, 8_000, "");
        let text = seen(&plan, &talk);
        let missing: Vec<u64> =
            (0..turns).filter(|turn| !text.contains(&format!("FACT-{turn}:"))).collect();
        assert!(missing.is_empty(), "{missing:?} of {turns} turns");
    }
}

#[test]
fn a_long_request_in_which_nothing_is_found_keeps_its_ends() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me with the contract.").assistant("Gladly, send it.");
    let clauses: Vec<String> =
        (0..900).map(|clause| format!("Clause {clause}: the tenant pays in advance.")).collect();
    talk.user(&clauses.join("\n")).assistant("I have read it.").user("Hm, well, ok so far");
    let plan = assemble(&create(), &talk, 8_000, "Hm, well, ok so far");
    let text = seen(&plan, &talk);
    assert!(text.contains("Clause 0:") && text.contains("Clause 899:"), "{text}");
    assert!(plan.estimated_tokens > 4_000, "{}", plan.estimated_tokens);
}

#[test]
fn a_prompt_finds_what_a_line_in_place_of_a_result_leaves_out() {
    let log: String = (0..120).map(|line| format!("kestrel line {line}: all is well\n")).collect();
    let log = format!("{log}kestrel: quota exceeded for tenant Brunswick, limit is 7340\n{log}");
    for turns in [2, 6, 10, 14, 18] {
        let engine = create();
        let mut talk = agent_talk(30);
        talk.user("Read the log of kestrel.");
        talk.calls(&[("log", "read_part", r#"{"n":1}"#)]).result("log", "read_part", &log);
        talk.assistant("I read the log.");
        for turn in 0..turns {
            let prompt = format!("Look into case {turn}.");
            talk.user(&prompt);
            // The window of a living session moves now and then only.
            assemble(&engine, &talk, 12_000, &prompt);
            let id = format!("case-{turn}");
            talk.calls(&[(&id, "read_part", r#"{"n":1}"#)]);
            talk.result(&id, "read_part", &format!("row_{turn} ").repeat(60)).assistant("Looked.");
        }
        let prompt = "What was the quota limit of tenant Brunswick?";
        talk.user(prompt);
        let plan = assemble(&engine, &talk, 12_000, prompt);
        assert!(seen(&plan, &talk).contains("limit is 7340"), "after {turns} turns");
        assert!(cost(&plan, &talk) <= 12_000);
    }
}

#[test]
fn what_fits_stays_as_it_is() {
    let talk = long_talk();
    let plan = assemble(&create(), &talk, 1_000_000, "anything");
    assert_eq!(plan.ops.len(), 1);
    assert_eq!(cost(&plan, &talk), talk.transcript().total_tokens());
}

#[test]
fn a_prompt_finds_an_old_message() {
    let mut talk = long_talk();
    let prompt = "Where is the saffron farm of Irene?";
    talk.user(prompt);
    let plan = assemble(&create(), &talk, BUDGET, prompt);
    let text = seen(&plan, &talk);
    assert!(text.contains("near Teruel"), "{text}");
    assert!(text.contains("OUI-2") && !text.contains("AVE-1"), "{text}");
    assert_eq!(cost(&plan, &talk), plan.estimated_tokens);
    assert!(plan.estimated_tokens <= BUDGET);
}

#[test]
fn the_beginning_stays_the_same_until_the_window_moves() {
    let (engine, mut talk) = (create(), long_talk());
    talk.user("Where is the saffron farm?");
    let first = assemble(&engine, &talk, BUDGET, "Where is the saffron farm?");
    talk.assistant("Near Teruel.");
    talk.user("And who keeps it?");
    let second = assemble(&engine, &talk, BUDGET, "And who keeps it?");
    let stable = first.ops.iter().zip(&second.ops).take_while(|(one, two)| one == two).count();
    assert!(stable + 3 >= first.ops.len(), "{stable} of {}", first.ops.len());
    let again = assemble(&create(), &talk, BUDGET, "And who keeps it?");
    assert_eq!(again, assemble(&create(), &talk, BUDGET, "And who keeps it?"));
}

#[test]
fn the_model_searches_and_opens_what_it_no_longer_sees() {
    let (engine, talk) = (create(), long_talk());
    let call = |name: &str, arguments: Value| {
        let request =
            ToolCallRequest { name: name.into(), arguments, ..ToolCallRequest::default() };
        block_on(engine.call_tool(talk.transcript(), request)).unwrap()
    };
    let found = call("context_search", json!({ "query": "saffron farm" }));
    assert!(found.text.contains("Teruel"), "{}", found.text);
    let id = found.text.lines().find(|line| line.contains("Teruel")).unwrap();
    let id = id.trim_start_matches('[').split(' ').next().unwrap();
    let opened = call("context_expand", json!({ "id": id, "around": 1 }));
    assert!(opened.text.contains("saffron") && opened.text.contains("Lovely"), "{}", opened.text);
    assert!(call("context_expand", json!({ "id": "nothing" })).is_error);
    assert!(call("context_search", json!({})).is_error);
}

#[test]
fn the_tools_reach_what_a_compaction_removed() {
    let mut before = TranscriptBuilder::new();
    before.user("Help me plan.").assistant("Gladly.");
    before.user("My sister Irene keeps a saffron farm near Teruel.").assistant("Lovely.");
    let folded = before.transcript();
    let history = folded.iter().map(|entry| HistoryEntry {
        id: format!("folded-{}", entry.seq()),
        role: entry.role().name().into(),
        text: entry.text().into(),
        timestamp_ms: entry.timestamp_ms(),
        tokens: entry.tokens(),
    });
    let host = Arc::new(ScriptedHost::new());
    host.set_history(history.collect());
    let engine = EngineFactory::linked::<RecallEngine>().create(host, &json!({})).unwrap();
    let call = |talk: &TranscriptBuilder, name: &str, arguments: Value| {
        let request =
            ToolCallRequest { name: name.into(), arguments, ..ToolCallRequest::default() };
        block_on(engine.call_tool(talk.transcript(), request)).unwrap().text
    };
    let query = json!({ "query": "saffron farm" });
    let mut after = TranscriptBuilder::with_epoch(1);
    after.user("What grows in autumn?").assistant("Pumpkins, on most farms.");
    let found = call(&after, "context_search", query.clone());
    assert!(found.starts_with("[folded-2 user]"), "{found}");
    let opened = call(&after, "context_expand", json!({ "id": "folded-2", "around": 1 }));
    assert!(opened.contains("Teruel") && opened.contains("Lovely"), "{opened}");
    // Before a compaction the host is not asked.
    let found = call(&before, "context_search", query);
    assert!(!found.contains("folded"), "{found}");
}

#[test]
fn the_summary_of_another_engine_takes_no_room_from_the_newest_names() {
    let mut talk = TranscriptBuilder::with_epoch(1);
    let lines: Vec<String> = (0..250).map(|n| format!("- /old/src/part_{n}.rs was read")).collect();
    let old = format!("## Decisions\n{}", lines.join("\n"));
    talk.summary(&wrap_summary(&old, &Provenance { entries: 9, writer: "extractive" }));
    for number in 0..12 {
        talk.user(&format!("Change src/new_{number}.rs for ticket OPS-12{number:02}."));
        let path = format!(r#"{{"path":"src/new_{number}.rs"}}"#);
        talk.calls(&[("a", "read", &path)]).result("a", "read", &"let a = call(b);\n".repeat(12));
        talk.assistant(&format!("Committed as 8bb44{number:02}."));
    }
    let total_tokens = talk.transcript().total_tokens();
    let request = CompactRequest { budget: total_tokens * 2, force: true, ..Default::default() };
    let plan = block_on(create().compact(talk.transcript(), request)).unwrap();
    let Compaction::Plan(plan) = plan else { panic!("{plan:?}") };
    let text = seen(&plan, &talk);
    let lost: Vec<String> = (0..12)
        .flat_map(|n| [format!("src/new_{n}.rs"), format!("8bb44{n:02}")])
        .filter(|name| !text.contains(name))
        .collect();
    assert!(lost.is_empty() && !text.contains("Nothing of it"), "{lost:?}");
    assert!(cost(&plan, &talk) < total_tokens, "{} of {total_tokens}", cost(&plan, &talk));
}

#[test]
fn a_compaction_keeps_rules_and_makes_room() {
    let (engine, talk) = (create(), long_talk());
    let tokens = talk.transcript().total_tokens();
    let request =
        CompactRequest { budget: 4_000, current_tokens: tokens, ..CompactRequest::default() };
    let answer = block_on(engine.compact(talk.transcript(), request)).unwrap();
    let Compaction::Plan(plan) = answer else { panic!("{answer:?}") };
    let text = seen(&plan, &talk);
    assert!(text.contains("OUI-2") && !text.contains("AVE-1"), "{text}");
    assert!((1_200..3_800).contains(&cost(&plan, &talk)), "{}", cost(&plan, &talk));
}

proptest! {
    #[test]
    fn plans_fit_the_budget_and_name_entries_in_order(
        generated in transcripts(), budget in 50u64..4_000,
    ) {
        let transcript = generated.transcript();
        let request = AssembleRequest { budget, prompt: "what next".into(), ..AssembleRequest::default() };
        let plan = block_on(create().assemble(transcript.clone(), request)).unwrap();
        prop_assert_eq!(plan_fault(&plan, &transcript), None);
        let cost: u64 = plan.project(&transcript).iter().map(|item| item.tokens()).sum();
        prop_assert_eq!(cost, plan.estimated_tokens);
        prop_assert!(cost <= budget.max(transcript.total_tokens()));
    }
}
