//! Properties for any conversation, window and budget.

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::generate::{Script, ScriptPart, script_parts};
use ctxhost_engine_api::testing::{TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{Compaction, Flags, Plan, Role, Transcript};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fixtures::{self, EngineHarness};

/// Enough turns for a compaction.
fn transcripts() -> impl Strategy<Value = Transcript> {
    vec(script_parts(), 0..40).prop_map(|scenes: Vec<ScriptPart>| {
        let mut script = Script::new();
        scenes.iter().for_each(|scene| script.push_part(scene));
        script.finish().transcript()
    })
}

fn compacted(harness: &EngineHarness, transcript: &Transcript, budget: u64) -> Compaction {
    block_on(harness.engine.compact(transcript.clone(), harness.request(transcript, budget)))
        .unwrap()
}

fn kept(plan: &Plan, transcript: &Transcript) -> Vec<u64> {
    plan.project(transcript).iter().filter_map(|item| item.entry()).map(|e| e.seq()).collect()
}

fn cost(plan: &Plan, transcript: &Transcript) -> u64 {
    plan.project(transcript).iter().map(|item| item.tokens()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn compactions_are_valid_and_make_progress(
        transcript in transcripts(),
        share in 0.2f64..1.5,
        attempt in 1u32..4,
    ) {
        let harness = EngineHarness::new(json!({}));
        let before = transcript.total_tokens();
        let budget = (before as f64 * share) as u64;
        let request = ctxhost_engine_api::CompactRequest {
            attempt,
            ..harness.request(&transcript, budget)
        };
        let answer = block_on(harness.engine.compact(transcript.clone(), request)).unwrap();
        let Compaction::Plan(plan) = answer else { return Ok(()) };
        prop_assert_eq!(plan_fault(&plan, &transcript), None);
        let after = cost(&plan, &transcript);
        prop_assert_eq!(after, plan.estimated_tokens);
        prop_assert!(after as f64 <= budget as f64 * 0.95, "{} of {}", after, budget);
        prop_assert!(before - after >= before.min(budget) / 20, "{} -> {}", before, after);

        let kept = kept(&plan, &transcript);
        let newest = transcript.newest_user_message().map(|entry| entry.seq());
        // A result without its call can never be sent and is not part of the live round.
        let last = transcript.iter().rev().find(|entry| !entry.has(Flags::ORPHAN));
        let last = last.filter(|last| last.role() == Role::Tool || last.has(Flags::TOOL_CALLS));
        let live = last.map_or(transcript.len() as u64, |entry| entry.frame());
        for entry in transcript.iter() {
            let must_stay = entry.has(Flags::PINNED)
                || Some(entry.seq()) == newest
                || (entry.seq() >= live && !entry.has(Flags::ORPHAN));
            prop_assert!(!must_stay || kept.contains(&entry.seq()), "{:?} went", entry);
            let whole = kept.contains(&entry.frame()) == kept.contains(&entry.seq());
            prop_assert!(whole, "the frame of {:?} is cut", entry);
        }
    }

    #[test]
    fn a_compaction_leaves_the_floor_in_use(
        turns in vec((1usize..5, 1usize..300), 8..20),
        questions in 0usize..4,
        share in 0.5f64..0.9,
    ) {
        let harness = EngineHarness::new(json!({}));
        let mut talk = TranscriptBuilder::new();
        talk.user("Migrate the parser.");
        for (turn, (rounds, words)) in turns.iter().enumerate() {
            fixtures::read_words(&mut talk, turn, *rounds, *words);
        }
        // The last turns may be one word each.
        (0..questions).for_each(|_| _ = talk.assistant("Done.").user("go on"));
        let transcript = talk.transcript();
        let budget = (transcript.total_tokens() as f64 * share) as u64;
        prop_assume!(budget >= 2_000);
        let answer = compacted(&harness, &transcript, budget);
        let Compaction::Plan(plan) = answer else { panic!("{answer:?}") };
        let floor = budget * 3 / 10;
        // Estimates of what a frame takes may miss by an eighth.
        prop_assert!(cost(&plan, &transcript) + floor / 8 >= floor, "{} of {}", cost(&plan, &transcript), budget);
    }

    #[test]
    fn the_same_conversation_gives_the_same_bytes(transcript in transcripts(), share in 0.2f64..1.5) {
        let (one, other) = (EngineHarness::new(json!({})), EngineHarness::new(json!({})));
        let budget = (transcript.total_tokens() as f64 * share) as u64;
        let plan = one.assembled(&transcript, budget);
        prop_assert_eq!(&plan, &one.assembled(&transcript, budget));
        prop_assert_eq!(&plan, &other.assembled(&transcript, budget));
        prop_assert_eq!(compacted(&one, &transcript, budget), compacted(&other, &transcript, budget));
    }

    #[test]
    fn assembling_keeps_every_entry_and_never_grows(transcript in transcripts(), share in 0.05f64..1.5) {
        let harness = EngineHarness::new(json!({ "micro": { "keep_results": 1, "over_chars": 40 } }));
        let budget = (transcript.total_tokens() as f64 * share) as u64;
        let plan = harness.assembled(&transcript, budget);
        prop_assert_eq!(plan_fault(&plan, &transcript), None);
        prop_assert_eq!(kept(&plan, &transcript), (0..transcript.len() as u64).collect::<Vec<_>>());
        let shown = cost(&plan, &transcript);
        prop_assert!(shown <= transcript.total_tokens());
        prop_assert_eq!(shown, plan.estimated_tokens);
    }
}
