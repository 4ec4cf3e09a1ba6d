//! Cases 34 and 35: the end of the history, and the treatment of an earlier summary.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Action, Compaction};
use serde_json::json;

use crate::fixtures::{compact, engine, offline, planned, request, summaries};

/// One message of the recorded cases, 40 times as long: the recorded ones are too short for a
/// summary.
const UNIT_TOKENS: u64 = 4_000;

/// u1 a1 u2 a2(call) r2 a3 u3, all but the last of one unit.
fn recorded() -> TranscriptBuilder {
    let unit = "x".repeat(UNIT_TOKENS as usize * 4);
    let mut talk = TranscriptBuilder::new();
    talk.user(&unit).assistant(&unit).user(&unit);
    talk.calls(&[("1", "write", &json!({"content": unit}).to_string())]);
    talk.result("1", "write", &unit).assistant(&unit).user("and now?");
    talk
}

/// The reference keeps at least `keepRecent`, including the message that crosses it; this engine
/// keeps at most as much, because the kept part must fit. The first message is the task and always
/// stays, and only the newest turn is split.
#[test]
fn case_34_where_the_tail_begins() {
    let talk = recorded();
    let transcript = talk.transcript();
    for (case, keep_units, tail) in [
        ("1: u3, as in V", 0.01, Some(6)),
        ("50: V from a3", 0.5, Some(6)),
        ("200: from a3, as in V", 2.0, Some(5)),
        ("220: V from u2; call and result stay together", 3.1, Some(3)),
        ("300: V from u2", 4.1, Some(2)),
        ("400: V from a1, split", 5.1, None),
        ("10,000: nothing to do, as in V", 100.0, None),
    ] {
        let keep_tokens = (keep_units * UNIT_TOKENS as f64) as u64;
        let config = json!({"compaction": {
            "keep_recent_tokens": keep_tokens, "keep_recent_share": 1.0, "min_fold_tokens": 1,
        }});
        let engine = engine(&offline(), &config);
        match compact(&engine, &transcript, request(1_000_000, 1)).unwrap() {
            Compaction::Plan(plan) => {
                let Action::Keep(range) = &plan.ops.last().unwrap().action else { panic!() };
                assert_eq!(Some(range.start), tail, "case {case}");
                assert_eq!(range.end, 7, "case {case}");
            }
            _ => assert_eq!(tail, None, "case {case}"),
        }
    }
}

/// The reference starts at the first kept entry of the last compaction and passes its summary on.
/// Here that summary is in the live transcript and is replaced with the rest: one summary is left.
#[test]
fn case_35_an_earlier_summary_is_replaced() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").summary("## Decisions\n- use axum\n\n## Constraints/Rules\n- no unsafe");
    for round in 0..30 {
        talk.user(&format!("step {round} please")).assistant(&"w".repeat(900));
    }
    let plan = planned(&engine(&offline(), &json!({})), &talk.transcript(), request(4_000, 1));
    let summaries_in_plan = summaries(&plan);
    assert_eq!(summaries_in_plan.len(), 1);
    assert!(
        summaries_in_plan[0].contains("- use axum") && summaries_in_plan[0].contains("- no unsafe"),
        "{}",
        summaries_in_plan[0]
    );
    let covered = plan.ops.iter().find(|op| matches!(op.action, Action::Insert { .. })).unwrap();
    assert!(covered.action.range().contains(&1));
}
