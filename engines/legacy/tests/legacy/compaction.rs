//! Whole compactions without a model.

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Action, Compaction, ErrorKind, Role};
use ctxhost_engine_kit::summary::HEADINGS;
use serde_json::{Value, json};

use crate::fixtures::{
    answering, compact, earlier_summary, engine, failing, offline, planned, request, session,
    summaries,
};

fn plain() -> EngineHandle {
    engine(&offline(), &json!({}))
}

#[test]
fn history_becomes_one_summary_between_the_task_and_the_tail() {
    let talk = session(40);
    let transcript = talk.transcript();
    let plan = planned(&plain(), &transcript, request(6_000, 1));
    let actions: Vec<&Action> = plan.ops.iter().map(|op| &op.action).collect();
    let [Action::Keep(task), Action::Insert { role, text, covers }, Action::Keep(tail)] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((task.clone(), covers.start, covers.end), (0..1, 1, tail.start));
    assert_eq!((*role, tail.end), (Role::User, transcript.len() as u64));
    assert!(text.starts_with("[ctxhost: summary of"));
    let places: Vec<usize> = HEADINGS.iter().map(|heading| text.find(heading).unwrap()).collect();
    assert!(places.is_sorted());
    for part in ["## Recent turns preserved verbatim", "## Tool Failures", "<modified-files>"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("- Never touch the schema."));
    assert!(text.contains("instead of a lock"));
    assert!(plan.estimated_tokens <= 5_400);
    assert!(plan.ops[1].note.as_ref().unwrap().detail.ends_with("tokens, extractive"));
    let modified = plan.extras.details["modifiedFiles"].as_array().unwrap();
    assert!(modified.len() > 20 && plan.extras.details["readFiles"] == json!([]));
    assert_eq!(plan, planned(&plain(), &transcript, request(6_000, 1)), "deterministic");
}

#[test]
fn a_split_turn_keeps_its_request_and_gets_a_summary_of_its_own() {
    let mut talk = session(20);
    talk.user("Now migrate the whole database");
    let newest = talk.len() - 1;
    for step in 0..40 {
        talk.calls(&[("s", "exec", "{}")]).result(
            "s",
            "exec",
            &format!("step {step} {}", "y".repeat(400)),
        );
    }
    let transcript = talk.transcript();
    let plan = planned(&plain(), &transcript, request(6_000, 1));
    let covers: Vec<_> =
        plan.ops.iter().filter(|op| matches!(op.action, Action::Insert { .. })).collect();
    assert_eq!(covers.len(), 2);
    assert_eq!(covers[0].action.range().end, newest);
    assert_eq!(covers[1].action.range().start, newest + 1);
    let kept = plan
        .project(&transcript)
        .iter()
        .any(|item| item.entry().is_some_and(|e| e.seq() == newest));
    assert!(kept);
    assert!(summaries(&plan)[1].contains("## Pending user asks\n- None."));
}

#[test]
fn a_single_task_with_a_long_tool_loop_compacts() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Refactor everything. Always keep the tests green.");
    for step in 0..100 {
        talk.calls(&[("s", "exec", "{}")]).result(
            "s",
            "exec",
            &format!("step {step} {}", "y".repeat(400)),
        );
    }
    let transcript = talk.transcript();
    let plan = planned(&plain(), &transcript, request(6_000, 1));
    assert_eq!(summaries(&plan).len(), 1);
    assert!(plan.estimated_tokens < 5_700);
}

#[test]
fn one_huge_result_is_cut_in_place() {
    let mut talk = TranscriptBuilder::new();
    talk.user("look").calls(&[("a", "read", "{}"), ("b", "read", "{}")]);
    talk.result("a", "read", &"x".repeat(90_000)).result("b", "read", "small");
    let transcript = talk.transcript();
    let plan = planned(&plain(), &transcript, request(6_000, 1));
    assert!(plan.estimated_tokens <= 5_400, "{}", plan.estimated_tokens);
    assert!(summaries(&plan).is_empty());
    let note = plan.ops[1].note.as_ref().unwrap();
    assert_eq!(note.layer, "tool-result guard");
}

#[test]
fn nothing_to_compact_has_a_reason() {
    let short = session(2);
    let compaction = compact(&plain(), &short.transcript(), request(100_000, 1)).unwrap();
    assert!(matches!(compaction, Compaction::Nothing { .. }));
    let empty = TranscriptBuilder::new();
    let compaction = compact(&plain(), &empty.transcript(), request(100_000, 1)).unwrap();
    assert!(matches!(compaction, Compaction::Nothing { .. }));
}

#[test]
fn repeated_compactions_neither_nest_nor_grow() {
    let mut summary: Option<(String, Value)> = None;
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let mut talk = TranscriptBuilder::new();
        talk.user("The task: keep the service alive");
        if let Some((text, details)) = &summary {
            earlier_summary(&mut talk, text, details);
        }
        for turn in 0..30 {
            talk.user(&format!("Check host {turn}. Never restart it."));
            talk.calls(&[("a", "write", r#"{"path": "/var/log/report.txt"}"#)]);
            talk.result("a", "write", &"z".repeat(900)).assistant("Checked, all fine.");
        }
        let plan = planned(&plain(), &talk.transcript(), request(6_000, 1));
        let text = summaries(&plan)[0].to_owned();
        assert_eq!(text.matches("<summary>").count(), 1);
        assert_eq!(text.matches("## Decisions").count(), 1);
        assert_eq!(plan.extras.details["modifiedFiles"], json!(["/var/log/report.txt"]));
        sizes.push(text.len());
        summary = Some((text, plan.extras.details));
    }
    assert!(sizes.iter().max().unwrap() <= &(sizes[0] + 200), "{sizes:?}");
}

#[test]
fn secrets_reach_neither_summary_nor_model() {
    let mut talk = TranscriptBuilder::new();
    talk.user("task");
    for turn in 0..30 {
        talk.user(&format!("Always use sk-ant-REDACTED{turn} and password=hunter2hunter2"));
        talk.calls(&[("a", "exec", r#"{"token": "ghp_0123456789abcdef0123"}"#)]);
        talk.failure("a", "exec", &"AKIAIOSFODNN7EXAMPLE ".repeat(20));
        talk.assistant("Done.");
    }
    let host = answering(vec![failing(ErrorKind::ModelAuth)]);
    let plan = planned(&engine(&host, &json!({})), &talk.transcript(), request(3_000, 1));
    let asked = host.completion_requests();
    assert!(!asked.is_empty());
    let read = asked.iter().map(|request| request.prompt.as_str());
    for text in read.chain(summaries(&plan)) {
        for secret in ["sk-ant", "hunter2", "ghp_0123", "AKIAIOS"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(!plan.extras.details.to_string().contains("AKIA"));
}

#[test]
fn what_cannot_fit_is_reported_with_its_numbers() {
    let mut talk = session(10);
    talk.user(&"a huge paste ".repeat(4_000));
    let error = compact(&plain(), &talk.transcript(), request(6_000, 1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::CannotFit);
    assert!(error.message.contains("and a compaction must end at 5,700"), "{error}");
}

/// The request of the history was answered in the kept tail, so it is not pending.
#[test]
fn a_request_that_the_tail_answers_is_not_pending() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task");
    for round in 0..12 {
        talk.assistant(&format!("note {round} {}", "w".repeat(900)));
    }
    talk.user("Please rename the parser module");
    for round in 0..12 {
        let id = round.to_string();
        talk.calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"y".repeat(1_200));
    }
    talk.assistant("Renamed it.").user("Now the docs");
    talk.calls(&[("d", "exec", "{}")]).result("d", "exec", "ok");
    let plan = planned(&plain(), &talk.transcript(), request(4_000, 1));
    let text = summaries(&plan)[0];
    assert!(text.contains("## Pending user asks\n- None."), "{text}");
    assert!(text.contains("<user-requests>\n- Please rename the parser module\n"), "{text}");
    assert!(!text.contains("(answered)"), "{text}");
}

/// The same message twice within a minute is summarised once.
#[test]
fn case_40_a_message_that_was_sent_twice_is_summarised_once() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task")
        .user("Please deploy the whole cluster")
        .user("Please deploy the whole cluster");
    for round in 0..12 {
        let id = round.to_string();
        talk.calls(&[(&id, "exec", "{}")]).result(&id, "exec", &"y".repeat(1_200));
    }
    talk.user("and the docs");
    let plan = planned(&plain(), &talk.transcript(), request(3_000, 1));
    let asks = summaries(&plan)[0].split_once("## Pending user asks").unwrap().1;
    let asks = asks.split_once("## Exact").unwrap().0;
    assert_eq!(asks.matches("deploy the whole cluster").count(), 1, "{asks}");
}

#[test]
fn status_counts_what_was_done() {
    let engine = plain();
    planned(&engine, &session(40).transcript(), request(6_000, 1));
    let status = engine.status().unwrap();
    assert_eq!(status.compactions, 1);
    assert_eq!(status.details["summariesWithout"], json!(1));
    assert_eq!(status.details["settings"]["pruning"]["ttl"], json!("5m"));
    assert!(status.summary.starts_with("0 requests, 1 compactions"), "{}", status.summary);
}

#[test]
fn the_newest_results_of_a_wide_turn_stay_for_the_question_about_them() {
    let ids: Vec<String> = (0..150).map(|at| format!("c{at}")).collect();
    let mut talk = TranscriptBuilder::new();
    talk.user("Run all checks.");
    talk.calls(&ids.iter().map(|id| (id.as_str(), "check", "{}")).collect::<Vec<_>>());
    ids.iter().for_each(|id| _ = talk.result(id, "check", &format!("{id} {}", "x".repeat(900))));
    talk.user("Which failed?");
    let transcript = talk.transcript();
    let plan = planned(&plain(), &transcript, request(28_000, 1));
    let shown = plan.project(&transcript);
    let whole = shown.iter().filter(|item| item.text().len() > 900).count();
    assert!((30..100).contains(&whole), "{whole}");
    assert!(shown[151].text().starts_with("c149 "));
    assert!(plan.estimated_tokens < 25_200, "{}", plan.estimated_tokens);
}
