//! The appendix of a summary: recent turns, failures, files, workspace rules.

use ctxhost_engine_api::Role;
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_kit::cuts::recent_turns_start;
use ctxhost_engine_kit::summary::unwrap_summary;
use serde_json::{Value, json};

use crate::fixtures::{engine, offline, planned, request, session, summaries};

fn summary_text(talk: &TranscriptBuilder, config: &Value, budget_tokens: u64) -> String {
    let plan = planned(&engine(&offline(), config), &talk.transcript(), request(budget_tokens, 1));
    unwrap_summary(summaries(&plan)[0]).into_owned()
}

/// The reference preserves 0 to 3 of four turns; here from a longer session, with results.
#[test]
fn case_59_recent_turns_with_their_results() {
    for turns in [0, 1, 2, 3] {
        let config = json!({"compaction": {"recent_turns": turns, "summary_share": 0.5}});
        let talk = session(80);
        let transcript = talk.transcript();
        let plan = planned(&engine(&offline(), &config), &transcript, request(18_000, 1));
        let text = unwrap_summary(summaries(&plan)[0]);
        let recent = text.split_once("## Recent turns").map_or("", |(_, recent)| recent);
        assert_eq!(recent.matches("- User: ").count(), turns, "{recent}");
        let folded = plan.ops[1].action.range();
        let start = recent_turns_start(&transcript, folded.clone(), turns);
        let results = transcript.range(start..folded.end).filter(|e| e.role() == Role::Tool);
        assert_eq!(recent.matches("- Tool result (").count(), results.count());
    }
}

/// The reference does not summarise a short history that is preserved whole. This engine always
/// summarises what it replaces.
#[test]
fn case_47_a_short_history_is_summarised_and_preserved() {
    let mut talk = session(3);
    talk.user("one more thing").assistant(&"w".repeat(6_000)).user("and?");
    let config = json!({"compaction": {"summary_share": 0.9}});
    let text = summary_text(&talk, &config, 2_600);
    assert!(text.contains("## Decisions\n- ") && text.contains("## Recent turns"), "{text}");
}

#[test]
fn case_60_tool_failures() {
    let mut talk = TranscriptBuilder::new();
    talk.user("task");
    for (id, tool, text) in [
        ("1", "exec", "first\n  line"),
        ("1", "exec", "again"),
        ("2", "", "blank name"),
        ("3", "exec", ""),
        ("4", "exec", &"y".repeat(400)),
    ] {
        talk.calls(&[(id, "exec", "{}")]).failure(id, tool, text);
    }
    talk.assistant(&"w".repeat(9_000)).assistant("done").user("and?");
    let config = json!({"compaction": {"summary_share": 0.9}});
    let text = summary_text(&talk, &config, 2_000);
    let long = format!("- exec: {}…", "y".repeat(239));
    let expected = format!(
        "## Tool Failures\n- exec: first line\n- tool: blank name\n- exec: failed (no output)\n{long}"
    );
    assert!(text.ends_with(&expected), "{text}");
}

#[test]
fn case_60_the_newest_eight_failures() {
    let mut talk = TranscriptBuilder::new();
    talk.user("task");
    for number in 0..11 {
        let id = number.to_string();
        talk.calls(&[(&id, "exec", "{}")]).failure(&id, "exec", &format!("fault number {number}"));
    }
    talk.assistant(&"w".repeat(9_000)).assistant("done").user("and?");
    let text = summary_text(&talk, &json!({"compaction": {"summary_share": 0.9}}), 2_000);
    assert!(
        text.contains("## Tool Failures\n- ...and 3 earlier\n- exec: fault number 3"),
        "{text}"
    );
    assert_eq!(text.matches("- exec: fault number").count(), 8);
}

#[test]
fn the_rules_of_the_workspace_close_the_summary() {
    let agents = "# Agents\n## Red Lines\nNever force-push.\n## Style\ntabs";
    let config = json!({"compaction": {"workspace_rules": agents}});
    let text = summary_text(&session(40), &config, 6_000);
    let rules =
        "<workspace-critical-rules>\n## Red Lines\nNever force-push.\n</workspace-critical-rules>";
    assert!(text.ends_with(rules), "{text}");
    assert!(!summary_text(&session(40), &json!({}), 6_000).contains("workspace-critical-rules"));
}
