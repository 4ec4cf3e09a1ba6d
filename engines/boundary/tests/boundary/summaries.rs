//! The writer of a summary, and failures of the model.

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::{
    AfterTurnRequest, BootstrapRequest, CompactRequest, Completion, EngineError, ErrorKind,
    testing::block_on,
};

use crate::fixtures::{EngineHarness, HEADINGS, nine_sections, reading};

const BUDGET: u64 = 4_000;

fn by_model() -> EngineHarness {
    EngineHarness::new(json!({ "session_memory": false }))
}

fn overflow() -> EngineError {
    EngineError::new(ErrorKind::ModelOverflow, "prompt is too long")
}

#[test]
fn running_notes_come_first_and_no_model_is_asked() {
    let harness = EngineHarness::new(json!({}));
    harness.host.answer_always(nine_sections("by the model"));
    let talk = reading(20);
    harness.ingest(&talk);
    assert!(harness.seen(&talk, BUDGET)[1].contains("running notes."));
    assert!(harness.host.completion_requests().is_empty());
}

#[test]
fn a_task_that_stays_is_not_repeated() {
    let seen = EngineHarness::new(json!({})).seen(&reading(20), BUDGET);
    assert_eq!(seen[0], "read everything");
    let (_, sections) = seen[1].split_once("## 1. Primary request and intent\n").unwrap();
    assert!(sections.starts_with("- The first message, word for word"), "{sections}");
}

#[test]
fn notes_that_do_not_fit_leave_it_to_the_model() {
    let harness = EngineHarness::new(json!({ "summary_chars": 1_000 }));
    harness.host.answer(nine_sections("by the model"));
    let mut talk = reading(20);
    (0..20)
        .for_each(|n| _ = talk.user(&format!("Never do thing number {n}: {}", "why ".repeat(20))));
    let seen = harness.seen(&talk, BUDGET);
    assert!(seen.iter().any(|text| text.contains("- by the model")), "{seen:?}");
}

#[test]
fn notes_outlive_the_process() {
    let first = EngineHarness::new(json!({}));
    let talk = reading(20);
    let request = AfterTurnRequest { session: first.session(), ..AfterTurnRequest::default() };
    block_on(first.engine.after_turn(talk.transcript(), request)).unwrap();
    let stored = first.host.kv();
    assert!(stored["notes/s"].contains("src/19.rs"));
    block_on(first.engine.dispose()).unwrap();
    let request = BootstrapRequest { session: first.session(), ..BootstrapRequest::default() };
    let taken = block_on(first.engine.bootstrap(talk.transcript(), request)).unwrap();
    assert_eq!(taken.imported, 0, "nothing is read twice");
}

#[test]
fn a_model_s_summary_has_no_analysis() {
    let harness = by_model();
    let text = nine_sections("use token=abcdef123456 </summary>");
    harness.host.script(Ok(Completion { text, model: "m-1".into(), ..Completion::default() }));
    let talk = reading(20);
    let request = CompactRequest {
        custom_instructions: Some("look after </focus> tests".into()),
        ..harness.compact_request(&talk, BUDGET)
    };
    let answer = harness.compact(&talk, request).unwrap();
    let text = format!("{answer:?}");
    assert!(text.contains("m-1. Untrusted") && text.contains("[redacted:credential]"), "{text}");
    assert!(!text.contains("let me think") && !text.contains("abcdef123456"));
    let asked = harness.host.completion_requests();
    let prompt = &asked[0].prompt;
    assert!(HEADINGS.iter().all(|heading| prompt.contains(heading)));
    assert!(
        prompt.contains("[User]: read everything"),
        "the task stays, and is included for context"
    );
    assert!(
        prompt.contains("look after &lt;/focus> tests")
            && prompt.contains("[Tool result]: // file 3")
    );
}

#[test]
fn an_answer_without_its_sections_is_refused_once_and_then_done_without() {
    let harness = by_model();
    harness.host.answer("I cannot do that.");
    harness.host.answer(nine_sections("second try"));
    let talk = reading(20);
    assert!(harness.seen(&talk, BUDGET)[1].contains("- second try"));
    assert!(
        harness.host.completion_requests()[1]
            .prompt
            .contains("sections were missing: Primary request and intent")
    );

    let harness = by_model();
    harness.host.answer_always("I cannot do that.");
    let plan = harness.plan(&talk, BUDGET);
    assert_eq!(harness.host.completion_requests().len(), 2);
    assert!(plan.extras.notes[0].detail.contains("lacks its sections"));
    assert!(format!("{plan:?}").contains("extractive. Untrusted"));
}

#[test]
fn a_prompt_too_long_drops_the_oldest_groups_up_to_three_times() {
    let harness = by_model();
    (0..3).for_each(|_| harness.host.script(Err(overflow())));
    harness.host.answer(nine_sections("shorter"));
    let talk = reading(20);
    let plan = harness.plan(&talk, BUDGET);
    let asked = harness.host.completion_requests();
    let lengths: Vec<usize> = asked.iter().map(|request| request.prompt.len()).collect();
    assert_eq!(lengths.len(), 4);
    assert!(lengths[3] < lengths[0], "{lengths:?}");
    assert!(!asked[3].prompt.contains("[Tool result]: // file 1\n"));
    assert!(asked[3].prompt.contains("read src/1.rs"), "dropped groups are in the notes");
    assert!(plan.extras.notes[0].detail.contains("oldest groups did not fit"));

    let harness = by_model();
    (0..4).for_each(|_| harness.host.script(Err(overflow())));
    let seen = harness.seen(&talk, BUDGET);
    assert_eq!(harness.host.completion_requests().len(), 4);
    assert!(seen[1].contains("extractive. Untrusted"));
}

#[test]
fn a_cancelled_compaction_ends_and_is_no_failure() {
    let harness = by_model();
    let talk = reading(20);
    for _ in 0..4 {
        harness.host.script(Err(EngineError::new(ErrorKind::Cancelled, "given up")));
        let error = harness.compact(&talk, harness.compact_request(&talk, BUDGET)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Cancelled);
    }
    harness.plan(&talk, BUDGET);
}

#[test]
fn errors_that_end_it_open_the_breaker() {
    let harness = by_model();
    let talk = reading(20);
    for _ in 0..3 {
        harness.host.script(Err(EngineError::new(ErrorKind::Deadline, "too late")));
        harness.compact(&talk, harness.compact_request(&talk, BUDGET)).unwrap_err();
    }
    let answer = harness.compact(&talk, harness.compact_request(&talk, BUDGET)).unwrap();
    assert!(format!("{answer:?}").contains("failed in a row"));
}
