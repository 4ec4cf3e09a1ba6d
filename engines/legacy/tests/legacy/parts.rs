//! Summaries in parts and chunks, with earlier summaries and failing parts.

use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder};
use ctxhost_engine_api::{Compaction, ErrorKind, Plan, Result};
use serde_json::{Value, json};

use crate::fixtures::{
    answering, compact, engine, failing, good_summary, in_one_request, planned, request, session,
    summaries, writer,
};

/// A history long enough for parts and chunks in a window of 16,000.
fn staged(config: &Value, answers: Vec<Result<String>>, turns: usize) -> (ScriptedHost, Plan) {
    let host = answering(answers);
    let mut request = request(9_000, 1);
    request.model.window_tokens = 16_000;
    let mut merged = config.clone();
    merged["compaction"]["chunk_overhead_tokens"] = json!(0);
    let plan = planned(&engine(&host, &merged), &session(turns).transcript(), request);
    (host, plan)
}

#[test]
fn case_51_parts_are_summarised_and_merged() {
    for parallel in [false, true] {
        let config = json!({"compaction": {"parallel_parts": parallel}});
        let (host, plan) = staged(&config, vec![Ok(good_summary(60))], 60);
        let asked = host.completion_requests();
        let merge = &asked.last().unwrap().prompt;
        assert!(asked.len() >= 3, "{}", asked.len());
        assert!(merge.contains("[Part 1 of 2 - oldest messages, 2026-01-01 00:00 to "), "{merge}");
        assert!(merge.contains("[Part 2 of 2 - most recent messages, 2026-01-01"));
        assert_eq!(writer(&plan), "scripted");
    }
}

#[test]
fn case_52_chunks_roll_each_with_the_notes_before_it() {
    let config = json!({"compaction": {"parts": 1}});
    let (host, _) = staged(&config, vec![Ok(good_summary(60))], 60);
    let asked = host.completion_requests();
    assert!(asked.len() >= 2);
    assert!(!asked[0].prompt.contains("<previous-summary"));
    assert!(asked[1..].iter().all(|request| request.prompt.contains("<previous-summary")));
    assert!(asked.iter().all(|request| !request.prompt.contains("[Part ")));
}

#[test]
fn case_53_a_later_failure_keeps_the_finished_parts() {
    let summary = good_summary(40).replace("guards, no locks", "told by the model");
    let answers = vec![Ok(summary), failing(ErrorKind::ModelFailed)];
    let (host, plan) = staged(&json!({}), answers, 40);
    let text = summaries(&plan)[0];
    assert_eq!(host.completion_requests().len(), 4, "one answer, then three tries");
    assert!(text.contains("[Partial summary: a model told chunks 1-1 of"), "{text}");
    assert!(text.contains("- told by the model"));
    assert!(text.contains("by adding a guard instead of a lock"), "the rest is extracted");
}

#[test]
fn case_54_without_the_oversized_message_it_works() {
    let mut talk = session(12);
    talk.user(&format!("Here is the log {}", "z".repeat(60_000)));
    talk.assistant(&"w".repeat(3_000)).user("and?");
    let good = Ok(good_summary(12).replace("fix bug in module", "read the log here"));
    let answers = vec![failing(ErrorKind::ModelOverflow), good];
    let host = answering(answers);
    let mut request = request(6_000, 1);
    request.model.window_tokens = 28_000;
    let config =
        json!({"compaction": {"parts": 1, "chunk_base_ratio": 1.0, "chunk_min_ratio": 1.0}});
    let plan = planned(&engine(&host, &config), &talk.transcript(), request);
    let text = summaries(&plan)[0];
    assert_eq!(writer(&plan), "scripted", "{text}");
    assert!(text.contains("[Large user (~15K tokens) omitted from summary]"), "{text}");
}

#[test]
fn case_48_an_earlier_summary_is_updated() {
    let mut talk = TranscriptBuilder::new();
    talk.user("task").summary("## Decisions\n- use axum");
    for _ in 0..20 {
        talk.user("Go on with the work").assistant(&"w".repeat(400));
    }
    let host = answering(vec![failing(ErrorKind::ModelAuth)]);
    let plan = planned(&engine(&host, &json!({})), &talk.transcript(), request(2_000, 1));
    let asked = host.completion_requests();
    let (conversation, previous) = asked[0].prompt.split_once("<previous-summary").unwrap();
    assert!(!conversation.contains("use axum") && previous.contains("- use axum"));
    assert!(previous.contains("Update the previous summary with the conversation"));
    assert!(summaries(&plan)[0].contains("- use axum"));
}

#[test]
fn case_49_without_a_conversation_no_model_is_asked() {
    let mut talk = TranscriptBuilder::new();
    talk.system("be quiet");
    for round in 0..40 {
        let id = round.to_string();
        talk.calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"y".repeat(900));
        talk.assistant("HEARTBEAT_OK");
    }
    let host = answering(vec![Ok(good_summary(12))]);
    let plan = planned(&engine(&host, &json!({})), &talk.transcript(), request(3_000, 1));
    assert!(host.completion_requests().is_empty());
    assert_eq!(writer(&plan), "extractive");
    assert_eq!(summaries(&plan)[0].matches("- None.").count(), 5);
}

#[test]
fn case_50_the_prompt_of_a_split_turn_states_that_its_request_is_kept() {
    let mut talk = session(2);
    talk.user("Now migrate the whole database");
    for step in 0..40 {
        let id = step.to_string();
        talk.calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"y".repeat(800));
    }
    let marked = good_summary(0).replace("(answered) fix bug in module", "Migrate the database");
    let host = answering(vec![Ok(marked)]);
    let config = json!({"compaction": {"identifier_policy": "off"}});
    let plan = planned(&engine(&host, &config), &talk.transcript(), in_one_request(4_000));
    let asked = host.completion_requests();
    let prefix: Vec<_> = asked
        .iter()
        .filter(|request| request.prompt.contains("kept word for word elsewhere"))
        .collect();
    assert_eq!(prefix.len(), 2, "asked again");
    assert!(prefix[1].prompt.contains("retained_turn_ask_marked_pending"));
    let split = summaries(&plan).pop().unwrap();
    assert!(split.contains("## Pending user asks\n- None."), "{split}");
}

#[test]
fn the_last_attempt_summarises_older_history_extractively() {
    let host = answering(vec![failing(ErrorKind::ModelAuth)]);
    let mut request = request(9_000, 3);
    request.model.window_tokens = 16_000;
    let config = json!({"compaction": {"chunk_overhead_tokens": 0, "parts": 4}});
    let answer = compact(&engine(&host, &config), &session(60).transcript(), request);
    assert!(matches!(answer, Ok(Compaction::Plan(_))));
    assert!(host.completion_requests()[0].prompt.contains("<previous-summary"), "the older half");
}
