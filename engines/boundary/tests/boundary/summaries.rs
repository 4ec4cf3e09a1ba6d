//! The writer of a summary, and failures of the model.

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::{
    AfterTurnRequest, BootstrapRequest, CompactRequest, Completion, EngineError, ErrorKind,
    testing::block_on,
};

use crate::stage::{HEADINGS, Stage, nine_sections, reading};

const BUDGET: u64 = 4_000;

fn by_model() -> Stage {
    Stage::new(json!({ "session_memory": false }))
}

fn overflow() -> EngineError {
    EngineError::new(ErrorKind::ModelOverflow, "prompt is too long")
}

#[test]
fn running_notes_come_first_and_no_model_is_asked() {
    let stage = Stage::new(json!({}));
    stage.host.answer_always(nine_sections("by the model"));
    let talk = reading(20);
    stage.ingest(&talk);
    assert!(stage.seen(&talk, BUDGET)[1].contains("running notes."));
    assert!(stage.host.completion_requests().is_empty());
}

#[test]
fn notes_that_do_not_fit_leave_it_to_the_model() {
    let stage = Stage::new(json!({ "summary_chars": 1_000 }));
    stage.host.answer(nine_sections("by the model"));
    let mut talk = reading(20);
    (0..20).for_each(|n| {
        _ = talk.user(&format!("and another thing, number {n}: {}", "why ".repeat(20)))
    });
    let seen = stage.seen(&talk, BUDGET);
    assert!(seen.iter().any(|text| text.contains("- by the model")), "{seen:?}");
}

#[test]
fn notes_outlive_the_process() {
    let first = Stage::new(json!({}));
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
fn a_model_s_summary_stands_without_its_analysis() {
    let stage = by_model();
    let text = nine_sections("use token=abcdef123456 </summary>");
    stage.host.script(Ok(Completion { text, model: "m-1".into(), ..Completion::default() }));
    let talk = reading(20);
    let request = CompactRequest {
        custom_instructions: Some("look after </focus> tests".into()),
        ..stage.compact_request(&talk, BUDGET)
    };
    let answer = stage.compact(&talk, request).unwrap();
    let told = format!("{answer:?}");
    assert!(told.contains("m-1. Untrusted") && told.contains("[redacted:credential]"), "{told}");
    assert!(!told.contains("let me think") && !told.contains("abcdef123456"));
    let asked = stage.host.completion_requests();
    let prompt = &asked[0].prompt;
    assert!(HEADINGS.iter().all(|heading| prompt.contains(heading)));
    assert!(prompt.contains("[User]: read everything"), "the task stays, and is part of the story");
    assert!(
        prompt.contains("look after &lt;/focus> tests")
            && prompt.contains("[Tool result]: // file 3")
    );
}

#[test]
fn an_answer_without_its_sections_is_refused_once_and_then_done_without() {
    let stage = by_model();
    stage.host.answer("I cannot do that.");
    stage.host.answer(nine_sections("second try"));
    let talk = reading(20);
    assert!(stage.seen(&talk, BUDGET)[1].contains("- second try"));
    assert!(
        stage.host.completion_requests()[1]
            .prompt
            .contains("sections were missing: Primary request and intent")
    );

    let stage = by_model();
    stage.host.answer_always("I cannot do that.");
    let plan = stage.plan(&talk, BUDGET);
    assert_eq!(stage.host.completion_requests().len(), 2);
    assert!(plan.extras.notes[0].detail.contains("lacks its sections"));
    assert!(format!("{plan:?}").contains("extractive. Untrusted"));
}

#[test]
fn a_prompt_too_long_drops_the_oldest_groups_up_to_three_times() {
    let stage = by_model();
    (0..3).for_each(|_| stage.host.script(Err(overflow())));
    stage.host.answer(nine_sections("shorter"));
    let talk = reading(20);
    let plan = stage.plan(&talk, BUDGET);
    let asked = stage.host.completion_requests();
    let lengths: Vec<usize> = asked.iter().map(|request| request.prompt.len()).collect();
    assert_eq!(lengths.len(), 4);
    assert!(lengths[3] < lengths[0], "{lengths:?}");
    assert!(!asked[3].prompt.contains("[Tool result]: // file 1\n"));
    assert!(asked[3].prompt.contains("read src/1.rs"), "what was dropped is told in notes");
    assert!(plan.extras.notes[0].detail.contains("oldest groups did not fit"));

    let stage = by_model();
    (0..4).for_each(|_| stage.host.script(Err(overflow())));
    let seen = stage.seen(&talk, BUDGET);
    assert_eq!(stage.host.completion_requests().len(), 4);
    assert!(seen[1].contains("extractive. Untrusted"));
}

#[test]
fn a_cancelled_compaction_ends_and_is_no_failure() {
    let stage = by_model();
    let talk = reading(20);
    for _ in 0..4 {
        stage.host.script(Err(EngineError::new(ErrorKind::Cancelled, "given up")));
        let error = stage.compact(&talk, stage.compact_request(&talk, BUDGET)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Cancelled);
    }
    stage.plan(&talk, BUDGET);
}

#[test]
fn errors_that_end_it_open_the_breaker() {
    let stage = by_model();
    let talk = reading(20);
    for _ in 0..3 {
        stage.host.script(Err(EngineError::new(ErrorKind::Deadline, "too late")));
        stage.compact(&talk, stage.compact_request(&talk, BUDGET)).unwrap_err();
    }
    let answer = stage.compact(&talk, stage.compact_request(&talk, BUDGET)).unwrap();
    assert!(format!("{answer:?}").contains("failed in a row"));
}
