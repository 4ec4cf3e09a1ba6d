//! A session that fills its window, compaction by compaction.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    Action, AssembleRequest, CompactRequest, Compaction, EngineError, ErrorKind, ModelRef, Plan,
    PlanItem, Role, capability,
};
use ctxhost_engine_head_tail::HeadTailEngine;

const WINDOW: u64 = 32_000;
const BUDGET: u64 = 24_000;
const TRIGGER: u64 = 16_000;
const MINUTE_MS: i64 = 60_000;

const NOTES: &str = "## Goal\n- ship the parser\n\n## Progress\n### Done\n- read the files\n\n### In Progress\n- tests\n\n### Blocked\n- None.\n\n## Key Decisions\n- one pass\n\n## Next Steps\n- write docs\n\n## Critical Context\n- None.\n\n### Exact identifiers\n- /srv/parser.rs";

struct EngineHarness {
    host: ScriptedHost,
    engine: EngineHandle,
    now_ms: i64,
}

impl EngineHarness {
    fn new(mut config: Value) -> EngineHarness {
        // The trigger of a large window.
        config["threshold_min_tokens"] = json!(0);
        let host = ScriptedHost::new();
        let engine = EngineFactory::linked::<HeadTailEngine>()
            .create(Arc::new(host.clone()), &config)
            .unwrap();
        EngineHarness { host, engine, now_ms: 1_000 }
    }

    fn without_model() -> EngineHarness {
        let harness = EngineHarness::new(json!({}));
        harness.host.set_capabilities(&[]);
        harness
    }

    fn assemble(&self, talk: &TranscriptBuilder) -> Plan {
        let model = ModelRef { window_tokens: WINDOW, ..ModelRef::default() };
        let now_ms = self.now_ms;
        let request = AssembleRequest { budget: BUDGET, model, now_ms, ..Default::default() };
        block_on(self.engine.assemble(talk.transcript(), request)).unwrap()
    }

    fn try_compact(
        &self,
        talk: &TranscriptBuilder,
        force: bool,
    ) -> ctxhost_engine_api::Result<Compaction> {
        let model = ModelRef { window_tokens: WINDOW, ..ModelRef::default() };
        let request = CompactRequest {
            budget: BUDGET,
            model,
            attempt: 1,
            force,
            now_ms: self.now_ms,
            ..CompactRequest::default()
        };
        block_on(self.engine.compact(talk.transcript(), request))
    }

    fn compact(&self, talk: &TranscriptBuilder) -> Plan {
        match self.try_compact(talk, false).unwrap() {
            Compaction::Plan(plan) => plan,
            other => panic!("{other:?}"),
        }
    }

    fn nothing(&self, talk: &TranscriptBuilder) -> String {
        match self.try_compact(talk, false).unwrap() {
            Compaction::Nothing { reason } => reason,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads file after file, about 500 tokens each.
fn reads(talk: &mut TranscriptBuilder, from: usize, to: usize) {
    for number in from..to {
        let (id, path) = (format!("c{number}"), format!(r#"{{"path":"/srv/part{number}.rs"}}"#));
        talk.calls(&[(&id, "read", &path)]);
        talk.result(&id, "read", &format!("let part{number} = work();\n").repeat(80));
    }
}

/// A dialogue without tools: nothing to prune.
fn talks(talk: &mut TranscriptBuilder, turns: usize) {
    for number in 0..turns {
        talk.user(&format!("Question {number}? {}", "why ".repeat(400)));
        talk.assistant(&format!("We decided on plan {number}. {}", "because ".repeat(200)));
    }
}

fn summary(plan: &Plan) -> &str {
    let inserted = plan.ops.iter().find_map(|op| match &op.action {
        Action::Insert { role: Role::User, text, .. } => Some(text.as_str()),
        _ => None,
    });
    inserted.unwrap()
}

fn cost(plan: &Plan, talk: &TranscriptBuilder) -> u64 {
    plan.project(&talk.transcript()).iter().map(PlanItem::tokens).sum()
}

#[test]
fn below_half_of_the_window_nothing_happens() {
    let mut talk = TranscriptBuilder::new();
    talk.user("read them all");
    reads(&mut talk, 0, 25);
    assert!(talk.transcript().total_tokens() < TRIGGER);
    let plan = EngineHarness::without_model().assemble(&talk);
    assert_eq!(plan.ops.len(), 1);
    assert_eq!(plan.extras.compaction_wanted, None);
}

#[test]
fn above_it_output_is_pruned_first_and_that_is_enough() {
    let mut talk = TranscriptBuilder::new();
    talk.user("read them all");
    reads(&mut talk, 0, 40);
    assert!(talk.transcript().total_tokens() > TRIGGER);
    let harness = EngineHarness::without_model();
    let plan = harness.assemble(&talk);
    assert!(plan.estimated_tokens < TRIGGER / 2, "{}", plan.estimated_tokens);
    assert_eq!(plan.extras.compaction_wanted, None);
    let items = plan.project(&talk.transcript()).len() as u64;
    assert_eq!(items, talk.len(), "pruning drops no entry");
    reads(&mut talk, 40, 44);
    let later = harness.assemble(&talk);
    assert_eq!(later.ops[..plan.ops.len() - 1], plan.ops[..plan.ops.len() - 1]);
}

#[test]
fn where_pruning_cannot_help_a_compaction_is_wanted() {
    let mut talk = TranscriptBuilder::new();
    talk.user("let us talk");
    talks(&mut talk, 30);
    let harness = EngineHarness::without_model();
    let plan = harness.assemble(&talk);
    let reason = plan.extras.compaction_wanted.clone().unwrap();
    assert!(reason.ends_with("above the trigger of 16,000"), "{reason}");
    let plan = harness.compact(&talk);
    assert!(cost(&plan, &talk) < TRIGGER);
    assert!(cost(&plan, &talk) * 10 < talk.transcript().total_tokens() * 9);
    for heading in ["## Goal", "### Done", "## Key Decisions", "## Relevant Files", "## Next Steps"]
    {
        assert!(summary(&plan).contains(heading), "{heading}");
    }
    assert!(summary(&plan).contains("extractive. Untrusted notes"));
}

#[test]
fn one_huge_message_that_must_stay_wants_no_compaction() {
    let mut talk = TranscriptBuilder::new();
    talk.user(&"paste ".repeat(12_000)).assistant("I see.").user("And?");
    let plan = EngineHarness::without_model().assemble(&talk);
    assert!(plan.estimated_tokens > TRIGGER);
    assert_eq!(plan.extras.compaction_wanted, None);
}

#[test]
fn a_model_writes_the_notes_and_the_engine_adds_the_files() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let harness = EngineHarness::new(json!({}));
    harness.host.answer(NOTES);
    let plan = harness.compact(&talk);
    assert!(summary(&plan).contains("- ship the parser"));
    assert!(summary(&plan).contains("/srv/part7.rs"));
    let asked = harness.host.completion_requests();
    assert_eq!((asked.len(), asked[0].max_output_tokens), (1, 0));
    assert!(plan.extras.details["readFiles"].as_array().unwrap().len() > 20);
    assert_eq!(block_on(async { harness.engine.status() }).unwrap().compactions, 1);
}

#[test]
fn the_next_summary_is_the_last_one_brought_up_to_date() {
    let mut talk = TranscriptBuilder::with_epoch(1);
    talk.user("write the parser").summary(NOTES);
    reads(&mut talk, 0, 60);
    let harness = EngineHarness::new(json!({}));
    harness.host.answer(NOTES.replace("one pass", "two passes"));
    let plan = harness.compact(&talk);
    assert!(summary(&plan).contains("two passes"));
    assert!(harness.host.completion_requests()[0].prompt.contains("- ship the parser"));
    let plan = EngineHarness::without_model().compact(&talk);
    let text = summary(&plan);
    assert!(text.contains("- one pass") && text.contains("- (earlier) write docs"), "{text}");
    assert_eq!(text.matches("## Goal").count(), 1);
}

#[test]
fn a_failed_model_rests_for_ten_minutes_and_the_summary_is_made_without_it() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let mut harness = EngineHarness::new(json!({}));
    harness.host.script(Err(EngineError::new(ErrorKind::ModelTimeout, "too slow")));
    harness.host.answer_always(NOTES);
    let plan = harness.compact(&talk);
    assert!(summary(&plan).contains("extractive"));
    assert_eq!(plan.extras.notes[0].detail, "model failed, extractive summary instead: too slow");
    harness.now_ms += 9 * MINUTE_MS;
    assert!(summary(&harness.compact(&talk)).contains("extractive"));
    assert_eq!(harness.host.completion_requests().len(), 1);
    assert!(matches!(harness.try_compact(&talk, true), Ok(Compaction::Plan(_))));
    assert_eq!(harness.host.completion_requests().len(), 2, "a manual request ends the cooldown");
    harness.host.script(Err(EngineError::new(ErrorKind::ModelTimeout, "too slow")));
    harness.compact(&talk);
    harness.now_ms += 10 * MINUTE_MS;
    assert!(summary(&harness.compact(&talk)).contains("ship the parser"));
}

#[test]
fn an_answer_that_is_no_summary_counts_as_a_failure() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let long = format!("{NOTES}{}", "\n- more".repeat(40_000));
    for (answer, word) in [("I cannot do that.", "no section"), ("  ", "empty"), (&long, "longer")]
    {
        let harness = EngineHarness::new(json!({}));
        harness.host.answer(answer);
        let plan = harness.compact(&talk);
        assert!(summary(&plan).contains("extractive"), "{answer:.20}");
        let note = &plan.extras.notes[0].detail;
        assert!(note.contains(word), "{note}");
    }
}

#[test]
fn an_operator_may_rather_keep_the_history() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let harness = EngineHarness::new(json!({ "abort_on_summary_failure": true }));
    let error = harness.try_compact(&talk, false).unwrap_err();
    assert!(error.message.contains("the history is kept"), "{error}");
}

#[test]
fn a_cancelled_summary_ends_the_compaction() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let harness = EngineHarness::new(json!({}));
    harness.host.script(Err(EngineError::new(ErrorKind::Cancelled, "stop")));
    assert_eq!(harness.try_compact(&talk, false).unwrap_err().kind, ErrorKind::Cancelled);
}

#[test]
fn two_useless_compactions_start_a_cooldown() {
    let mut talk = TranscriptBuilder::new();
    // The summary could be left out, but is not worth another one.
    talk.user(&"paste ".repeat(12_000)).summary(&"what was done ".repeat(1_000));
    talk.assistant("I see.").user("And?");
    let mut harness = EngineHarness::without_model();
    for _ in 0..2 {
        assert_eq!(harness.nothing(&talk), "the middle is too short for a summary");
    }
    assert!(harness.nothing(&talk).starts_with("backing off: 2 compactions in a row saved less"));
    assert!(harness.assemble(&talk).extras.notes[0].detail.starts_with("backing off"));
    harness.now_ms += 10 * MINUTE_MS;
    assert_eq!(harness.nothing(&talk), "the middle is too short for a summary");
}

#[test]
fn what_the_host_keeps_anyway_starts_no_cooldown() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me with the contract.").assistant("Sure.").user(&"clause ".repeat(12_000));
    let harness = EngineHarness::without_model();
    (0..3).for_each(|_| _ = harness.nothing(&talk));
    talk.assistant("Three clauses are bad.").user("Which of them first?");
    assert!(cost(&harness.compact(&talk), &talk) < talk.transcript().total_tokens() / 2);
}

#[test]
fn a_newest_frame_that_is_too_large_is_cut_and_not_dropped() {
    let mut talk = TranscriptBuilder::new();
    talk.user("what does the log say?").calls(&[("a", "bash", "{}"), ("b", "ls", "{}")]);
    talk.result("a", "bash", &"a line of the log\n".repeat(20_000)).result("b", "ls", "small");
    let harness = EngineHarness::without_model();
    let plan = harness.compact(&talk);
    assert!(cost(&plan, &talk) * 100 <= BUDGET * 95);
    let transcript = talk.transcript();
    let items = plan.project(&transcript);
    let texts: Vec<String> = items.iter().map(|item| item.text().into_owned()).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[2].starts_with("a line of the log") && texts[2].contains("characters left out]"));
    assert_eq!(texts[3], "small");
}

#[test]
fn a_host_without_a_model_is_never_asked() {
    let mut talk = TranscriptBuilder::new();
    talk.user("write the parser");
    reads(&mut talk, 0, 60);
    let harness = EngineHarness::without_model();
    harness.compact(&talk);
    assert!(harness.host.completion_requests().is_empty());
    harness.host.set_capabilities(&[capability::COMPLETE]);
    harness.host.answer(NOTES);
    assert!(summary(&harness.compact(&talk)).contains("ship the parser"), "and has no cooldown");
}

#[test]
fn a_compaction_inserts_less_than_the_host_allows() {
    let mut talk = TranscriptBuilder::new();
    for round in 0..200 {
        let (id, command) = (format!("c{round}"), format!("cargo test -p part{round} --exact"));
        talk.user(&format!("Fix src/part{round}/mod.rs, ticket ABC-{round}, please."));
        talk.calls(&[(&id, "bash", &format!(r#"{{"command":"{command}"}}"#))]);
        talk.result(&id, "bash", &format!("error in /srv/app/part{round}/lib.rs:12"));
    }
    for budget in [1_000, 2_000, 4_000, 8_000] {
        let harness = EngineHarness::without_model();
        let current_tokens = talk.transcript().total_tokens();
        let request = CompactRequest { budget, attempt: 1, current_tokens, ..Default::default() };
        let answer = block_on(harness.engine.compact(talk.transcript(), request)).unwrap();
        let Compaction::Plan(plan) = answer else { panic!("{answer:?}") };
        let transcript = talk.transcript();
        let items = plan.project(&transcript);
        let own = items.iter().filter(|item| matches!(item, PlanItem::Inserted { .. }));
        let own_tokens: u64 = own.map(PlanItem::tokens).sum();
        assert!((1..=budget / 2).contains(&own_tokens), "{own_tokens} of {budget}");
    }
}
