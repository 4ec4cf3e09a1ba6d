//! Contract tests of the `boundary` engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod fixtures;
mod properties;
mod summaries;

use ctxhost_engine_api::border::EngineFactory;
use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::{ContractOptions, TranscriptBuilder, block_on, contract};
use ctxhost_engine_api::{
    CompactRequest, Compaction, Role, SessionRef, SubagentEndedRequest, SubagentSpawnRequest,
    Trigger,
};
use ctxhost_engine_boundary::BoundaryEngine;

use fixtures::{EngineHarness, reading};

#[test]
fn keeps_the_contract() {
    let nine = fixtures::nine_sections("Rename the field.");
    let tight = json!({
        "session_memory": false,
        "threshold": { "percent": 1 },
        "micro": { "keep_results": 0, "over_chars": 0 },
    });
    for (config, completion) in [(json!({}), None), (tight, Some(nine))] {
        let options = ContractOptions { config, completion, ..ContractOptions::default() };
        let report = contract(EngineFactory::linked::<BoundaryEngine>(), &options);
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn the_boundary_is_between_the_task_and_the_last_turn() {
    let harness = EngineHarness::new(json!({ "floor_share": 0.0 }));
    let mut talk = reading(20);
    talk.user("and the last one?").assistant("That was it.");
    let plan = harness.plan(&talk, 4_000);
    let transcript = talk.transcript();
    let items = plan.project(&transcript);
    let roles: Vec<Role> = items.iter().map(|item| item.role()).collect();
    assert_eq!(
        roles,
        [
            // The task, the summary, its acknowledgement, the files.
            Role::User,
            Role::User,
            Role::Assistant,
            Role::User,
            // What the newest request is about, the request, its answer.
            Role::Assistant,
            Role::Tool,
            Role::User,
            Role::Assistant,
        ]
    );
    assert_eq!(items[0].text(), "read everything");
    let summary = items[1].text();
    for words in ["<summary>\n## 1. Primary request and intent", "running notes", "Go on with"] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    assert!(items[3].text().contains("src/19.rs"), "the newest file comes back");
    assert_eq!(items[7].text(), "That was it.");
    assert!(!summary.contains("Host::history"), "the model cannot call the host");
    let files = plan.extras.details["readFiles"].as_array().unwrap();
    assert_eq!(files.len(), 19, "the newest one is kept");
}

#[test]
fn a_compaction_is_wanted_from_the_threshold_on() {
    let harness = EngineHarness::new(json!({}));
    let talk = reading(20);
    let total = talk.transcript().total_tokens();
    assert!(harness.assemble(&talk, total * 3 / 2).extras.compaction_wanted.is_none());
    // 171,000 of the 180,000 tokens that the host leaves: the budget fits, the threshold does not.
    let plan = harness.assemble(&talk, total + 20);
    assert!(plan.extras.compaction_wanted.is_some_and(|why| why.contains("over the threshold")));
    for config in [json!({ "compaction": false }), json!({ "auto_compaction": false })] {
        let plan = EngineHarness::new(config).assemble(&talk, total);
        assert!(plan.extras.compaction_wanted.is_none());
    }
}

#[test]
fn switches_leave_the_hand_free_or_not() {
    let talk = reading(20);
    let by_hand = |config, trigger| {
        let harness = EngineHarness::new(config);
        let request = CompactRequest { trigger, ..harness.compact_request(&talk, 4_000) };
        harness.compact(&talk, request).unwrap()
    };
    let is_plan = |answer| matches!(answer, Compaction::Plan(_));
    assert!(!is_plan(by_hand(json!({ "auto_compaction": false }), Trigger::Threshold)));
    assert!(is_plan(by_hand(json!({ "auto_compaction": false }), Trigger::Manual)));
    assert!(!is_plan(by_hand(json!({ "compaction": false }), Trigger::Manual)));
}

#[test]
fn three_refused_plans_open_the_breaker_until_one_by_hand_works() {
    let harness = EngineHarness::new(json!({}));
    let talk = reading(20);
    let total = talk.transcript().total_tokens();
    for _ in 0..3 {
        harness.plan(&talk, 4_000);
    }
    let answer = harness.compact(&talk, harness.compact_request(&talk, 4_000)).unwrap();
    let Compaction::Nothing { reason } = answer else { panic!("the breaker is closed") };
    assert!(reason.contains("3 compactions failed in a row"), "{reason}");
    assert!(harness.assemble(&talk, total).extras.compaction_wanted.is_none());

    let by_hand = CompactRequest { force: true, ..harness.compact_request(&talk, 4_000) };
    assert!(matches!(harness.compact(&talk, by_hand).unwrap(), Compaction::Plan(_)));
    let next = fixtures::after(1, 20);
    harness.plan(&next, 4_000);
}

#[test]
fn thrashing_is_reported_the_third_time() {
    let harness = EngineHarness::new(json!({}));
    let mut talk = reading(20);
    let mut noted = Vec::new();
    for epoch in 1..=4 {
        let plan = harness.plan(&talk, 4_000);
        noted.push(plan.extras.notes.iter().any(|note| note.layer == "thrash guard"));
        talk = fixtures::after(epoch, 0);
        talk.calls(&[("big", "read", "{}")]).result("big", "read", &"x ".repeat(9_000));
        talk.assistant("read it").user("next");
    }
    assert_eq!(noted, [false, false, false, true]);
}

#[test]
fn living_sub_agents_are_put_back() {
    let harness = EngineHarness::new(json!({}));
    let talk = reading(20);
    let session = |id: &str| SessionRef { id: id.into(), key: format!("agent:{id}") };
    for child in ["alive", "dead"] {
        let (parent, child) = (harness.session(), session(child));
        let request = SubagentSpawnRequest { parent, child, ..SubagentSpawnRequest::default() };
        block_on(harness.engine.prepare_subagent_spawn(talk.transcript(), request)).unwrap();
    }
    let ended = SubagentEndedRequest { child: session("dead"), ..SubagentEndedRequest::default() };
    block_on(harness.engine.on_subagent_ended(ended)).unwrap();
    let seen = harness.seen(&talk, 4_000).join("\n");
    assert!(seen.contains("agent:alive (session alive)") && !seen.contains("agent:dead"), "{seen}");
}

#[test]
fn the_second_compaction_merges_the_first() {
    let harness = EngineHarness::new(json!({ "session_memory": false }));
    let mut talk = reading(10);
    talk.user("Never touch the schema.");
    fixtures::reads(&mut talk, 10, 20);
    let first = harness.seen(&talk, 4_000);
    let mut next = TranscriptBuilder::with_epoch(1);
    next.user("read everything");
    first[1..4].iter().for_each(|text| _ = next.summary(text));
    fixtures::reads(&mut next, 30, 50);
    next.user("go on");
    let second = harness.seen(&next, 4_000);
    assert_eq!(second.join("\n").matches("<summary>").count(), 1);
    assert!(second[1].contains("- Never touch the schema."), "{}", second[1]);
    assert!(!second[1].contains("I have read the summary"));
}

#[test]
fn a_request_is_in_the_summary_once_and_pending_only_until_its_answer() {
    for config in [json!({}), json!({ "session_memory": false })] {
        let mut talk = TranscriptBuilder::new();
        talk.user("Build the shop.").assistant(&"Built. ".repeat(400));
        for request in 0..6 {
            talk.user(&format!("Next, request R{request}"));
            talk.assistant(&format!("File {request} written. {}", "words ".repeat(400)));
        }
        talk.user("Which files exist?");
        let seen = EngineHarness::new(config).seen(&talk, 4_000).join("\n");
        for request in 0..5 {
            let count = seen.matches(&format!("Next, request R{request}")).count();
            assert_eq!(count, 1, "{seen}");
        }
        assert_eq!(seen.matches("Which files exist?").count(), 1, "{seen}");
    }
}
