//! The contents of a compaction: requests word for word, the ledger, the newest turns.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Compaction, ErrorKind, Plan, Transcript};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{
    answering, compact, earlier_summary, engine, failing, good_summary, in_one_request, offline,
    planned, request, session, summaries,
};

/// The text that the model sees under a plan.
fn shown(plan: &Plan, transcript: &Transcript) -> String {
    let texts = plan.project(transcript).iter().map(|item| item.text().into_owned()).collect();
    let texts: Vec<String> = texts;
    texts.join("\n").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Turns of a coding session: a request, commands and reads, an answer.
fn work(talk: &mut TranscriptBuilder, turns: std::ops::Range<usize>) {
    for turn in turns {
        talk.user(&format!("Please look into case {turn}:\nwhy does step {turn} fail?"));
        let id = format!("c{turn}");
        let command = json!({"command": format!("cargo test -p part_{turn} -- --nocapture")});
        talk.calls(&[(&id, "bash", &command.to_string())]);
        match turn % 3 {
            0 => talk.failure(&id, "bash", &format!("{}\nexit code 101", "log ".repeat(200))),
            _ => talk.result(&id, "bash", &"log ".repeat(200)),
        };
        let path = json!({"path": format!("/srv/app/case_{turn}.rs")});
        talk.calls(&[("r", "read", &path.to_string())]).result("r", "read", &"x".repeat(900));
        talk.assistant(&format!("Case {turn} came from a missing lock in case_{turn}.rs."));
    }
}

/// Compacts, adds turns and compacts again, like a host.
fn compacted(rounds: usize, turns: usize, budget: u64) -> Vec<(String, u64)> {
    let mut summary: Option<(String, Value)> = None;
    let mut seen = Vec::new();
    for round in 0..rounds {
        let mut talk = TranscriptBuilder::new();
        talk.user("The task: keep the service alive");
        if let Some((text, details)) = &summary {
            earlier_summary(&mut talk, text, details);
        }
        work(&mut talk, round * turns..(round + 1) * turns);
        talk.user("and now?");
        let transcript = talk.transcript();
        let plan = planned(&engine(&offline(), &json!({})), &transcript, request(budget, 1));
        seen.push((shown(&plan, &transcript), plan.estimated_tokens));
        summary = Some((summaries(&plan)[0].to_owned(), plan.extras.details));
    }
    seen
}

#[test]
fn every_request_and_most_commands_survive_every_compaction() {
    let (rounds, turns) = (5, 14);
    for (round, (text, tokens)) in compacted(rounds, turns, 12_000).iter().enumerate() {
        let turns_so_far = (round + 1) * turns;
        for turn in 0..turns_so_far {
            let ask = format!("Please look into case {turn}: why does step {turn} fail?");
            // This test does not carry over the tail of an earlier round.
            assert!(text.contains(&ask) || turn % turns >= turns / 2, "{ask} in round {round}");
        }
        let commands =
            (0..turns_so_far).filter(|turn| text.contains(&format!("cargo test -p part_{turn} ")));
        assert!(commands.count() * 10 >= turns_so_far * 5, "round {round}");
        assert!(text.contains("[exit 101] cargo test -p part_0 --"), "{text}");
        assert!((3_600..10_800).contains(tokens), "{tokens}");
    }
}

#[test]
fn a_short_request_never_gives_way_to_a_long_one() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").user("Use tabs.").user(&"a pasted log line ".repeat(900));
    talk.user("Write the changelog.");
    work(&mut talk, 0..20);
    let transcript = talk.transcript();
    let plan = planned(&engine(&offline(), &json!({})), &transcript, request(9_000, 1));
    let text = summaries(&plan)[0];
    for ask in ["- Use tabs.\n", "- Write the changelog.\n", "- a pasted log line"] {
        assert!(text.contains(ask), "{ask} in {text}");
    }
    assert!(text.contains("[…]"));
}

/// Two results that each exceed the room: they are cut, and the room is used.
#[test]
fn large_results_are_cut_before_the_room_stays_empty() {
    let mut talk = TranscriptBuilder::new();
    talk.user("read both");
    for id in ["a", "b"] {
        talk.calls(&[(id, "read", r#"{"path":"/srv/app/large.rs"}"#)]);
        talk.result(id, "read", &format!("{} end", "fn main() {} ".repeat(4_000)));
    }
    talk.assistant("I read both.");
    let transcript = talk.transcript();
    let budget = 13_609;
    let plan = planned(&engine(&offline(), &json!({})), &transcript, request(budget, 1));
    let floor = budget * 3 / 10;
    assert!(plan.estimated_tokens >= floor, "{} of {floor}", plan.estimated_tokens);
    assert!(plan.estimated_tokens <= budget * 9 / 10);
    assert!(shown(&plan, &transcript).contains("/srv/app/large.rs"));
}

#[test]
fn the_ledger_has_its_limits_and_may_be_switched_off() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task");
    work(&mut talk, 0..60);
    let transcript = talk.transcript();
    let text = |config: Value| {
        let plan = planned(&engine(&offline(), &config), &transcript, request(12_000, 1));
        summaries(&plan)[0].to_owned()
    };
    let off = text(json!({"room": {"ledger_share": 0.0, "request_share": 0.0}}));
    assert!(!off.contains("<commands>") && !off.contains("<user-requests>"));
    let small = text(json!({"room": {"ledger_chars": 600}}));
    let block = small.split_once("<commands>").unwrap().1.split_once("</commands>").unwrap().0;
    assert!(block.len() < 600 && block.contains("part_5"), "{block}");
}

/// A refused summary fails the compaction if the conversation fits; otherwise an extractive summary
/// replaces it, with a note.
#[test]
fn a_refused_summary_is_noted_as_what_became_of_it() {
    let refused = || answering(vec![Ok("no sections at all".repeat(40))]);
    let talk = session(40);
    let pressed =
        planned(&engine(&refused(), &json!({})), &talk.transcript(), in_one_request(6_000));
    let notes: Vec<&str> = pressed.extras.notes.iter().map(|note| note.detail.as_str()).collect();
    assert!(notes[0].ends_with("using an extractive summary instead"), "{notes:?}");
    assert!(!notes[0].contains("the history is kept"));
    let config = json!({"compaction": {"keep_recent_tokens": 2_000}});
    let answer = compact(&engine(&refused(), &config), &talk.transcript(), in_one_request(90_000));
    let error = answer.unwrap_err();
    assert!(error.message.ends_with("the history is kept"), "{error}");
    let good = answering(vec![Ok(good_summary(40))]);
    let answer = compact(&engine(&good, &config), &talk.transcript(), in_one_request(90_000));
    assert!(matches!(answer, Ok(Compaction::Plan(_))));
    let broken = answering(vec![failing(ErrorKind::ModelAuth)]);
    let answer = compact(&engine(&broken, &config), &talk.transcript(), in_one_request(90_000));
    assert!(matches!(answer, Ok(Compaction::Plan(_))), "only a refusal calls it off");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any sizes: at least the floor is in use afterwards, and at most the target.
    #[test]
    fn a_compaction_uses_its_room(
        sizes in prop::collection::vec((1usize..400, 1usize..12_000), 24..60), budget in 6_000u64..20_000,
    ) {
        let mut talk = TranscriptBuilder::new();
        talk.user("The first task.");
        for (at, (ask, result)) in sizes.iter().enumerate() {
            let id = at.to_string();
            talk.user(&format!("ask {at} {}", "w ".repeat(ask / 2)));
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"out ".repeat(result / 4));
        }
        talk.assistant("done").user("and now?");
        let transcript = talk.transcript();
        prop_assume!(transcript.total_tokens() > budget);
        let plan = planned(&engine(&offline(), &json!({})), &transcript, request(budget, 1));
        prop_assert!(plan.estimated_tokens >= budget * 28 / 100, "{} of {}", plan.estimated_tokens, budget);
        prop_assert!(plan.estimated_tokens <= budget * 9 / 10);
        let text = shown(&plan, &transcript);
        let kept = (0..sizes.len()).filter(|at| text.contains(&format!("ask {at} w")) || text.contains(&format!("ask {at} ")));
        let whole: usize = sizes.iter().map(|(ask, _)| ask + 16).sum();
        let all_fit = whole * 10 / 4 <= budget as usize;
        prop_assert!(!all_fit || kept.count() == sizes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Calls beside each other that write much, which no cut of a result makes smaller.
    #[test]
    fn a_compaction_of_a_few_large_rounds_uses_its_room(
        rounds in prop::collection::vec(prop::collection::vec((1usize..4_000, 1usize..6_000), 1..6), 3..9),
        budget in 6_000u64..16_000,
    ) {
        let mut talk = TranscriptBuilder::new();
        talk.user("Rename the field in all files.");
        for (at, calls) in rounds.iter().enumerate() {
            let id = |call: usize| format!("{at}-{call}");
            let of = |call: usize, size: usize| {
                let text = "let field = old; ".repeat(size / 17);
                (id(call), format!(r#"{{"path":"src/{at}/{call}.rs","content":"{text}"}}"#))
            };
            let written: Vec<(String, String)> =
                calls.iter().enumerate().map(|(call, (size, _))| of(call, *size)).collect();
            let written: Vec<(&str, &str, &str)> =
                written.iter().map(|(id, text)| (id.as_str(), "write", text.as_str())).collect();
            talk.calls(&written);
            for (call, (_, size)) in calls.iter().enumerate() {
                talk.result(&id(call), "write", &"field renamed ".repeat(size / 14));
            }
        }
        talk.assistant("All files have the new field.").user("What is left?");
        talk.calls(&[("last", "read", "{}")]).result("last", "read", "nothing");
        let transcript = talk.transcript();
        prop_assume!(transcript.total_tokens() > budget * 3 / 2);
        let plan = planned(&engine(&offline(), &json!({})), &transcript, request(budget, 1));
        prop_assert!(plan.estimated_tokens >= budget * 28 / 100, "{} of {}", plan.estimated_tokens, budget);
        prop_assert!(plan.estimated_tokens <= budget * 9 / 10);
    }

    /// A model may write a short summary, so the kept entries and the ledger alone reach the floor.
    #[test]
    fn a_short_summary_leaves_the_floor_in_use(
        sizes in prop::collection::vec((1usize..1_500, 1usize..5_000), 30..80), budget in 8_000u64..24_000,
    ) {
        let mut talk = TranscriptBuilder::new();
        talk.user("The first task.");
        for (at, (thought, result)) in sizes.iter().enumerate() {
            let id = at.to_string();
            talk.assistant(&"i think ".repeat(thought / 8));
            let lines: String = (0..*result / 40).map(|line| format!("{line:05} ledger parser window socket 9\n")).collect();
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &lines);
        }
        let transcript = talk.transcript();
        prop_assume!(transcript.total_tokens() > budget);
        let config = json!({"compaction": {"quality_guard": false}});
        let host = answering(vec![Ok("short".to_owned())]);
        let plan = planned(&engine(&host, &config), &transcript, request(budget, 1));
        let floor = budget * 3 / 10;
        prop_assert!(plan.estimated_tokens >= floor, "{} of {}", plan.estimated_tokens, floor);
        prop_assert!(plan.estimated_tokens <= budget * 9 / 10);
    }
}

/// The same transcript gives the same bytes after a restart.
#[test]
fn a_compaction_is_the_same_after_a_restart() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task");
    work(&mut talk, 0..40);
    let transcript = talk.transcript();
    let plan = || planned(&engine(&offline(), &json!({})), &transcript, request(9_000, 1));
    assert_eq!(plan(), plan());
}

/// A request that leaves no room for what is before it: it is shortened, and the room is used.
#[test]
fn a_large_request_does_not_end_the_tail() {
    let budget = 15_000;
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").assistant("I begin.");
    for turn in 0..40 {
        talk.user(&format!("Look into case {turn}.")).assistant(&"what I found ".repeat(60));
    }
    talk.user(&"a pasted log line ".repeat(4_000)).assistant("An error.").user("next?");
    let transcript = talk.transcript();
    let plan = planned(&engine(&offline(), &json!({})), &transcript, request(budget, 1));
    let floor = budget * 3 / 10;
    assert!(plan.estimated_tokens >= floor, "{} of {floor}", plan.estimated_tokens);
    let text = shown(&plan, &transcript);
    for part in ["a pasted log line", "case 39. what I found"] {
        assert!(text.contains(part), "{text}");
    }
}
