//! Properties over generated transcripts and windows: plans are valid, deterministic, and keep
//! protected entries.

use std::collections::HashSet;

use ctxhost_engine_api::testing::generate::{GeneratedTranscript, transcripts};
use ctxhost_engine_api::testing::{TranscriptBuilder, plan_fault};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ErrorKind, Flags, ModelRef, Plan, PromptCache,
    Transcript,
};
use ctxhost_engine_kit::cuts::trailing_frame;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{assemble, compact, engine, offline};

/// Windows from 4,000 tokens to a million, as many small ones as large ones.
fn windows() -> impl Strategy<Value = u64> {
    (2.0f64..10.0)
        .prop_map(|power| (4_000.0 * power.exp2() / 4.0) as u64)
        .prop_map(|w| w.min(1_000_000))
}

/// All options enabled, and a window guard that accepts every window.
fn everything_on() -> Value {
    json!({
        "window": {"block_tokens": 1, "warn_tokens": 1},
        "pruning": {"mode": "cache-ttl", "old_arguments": true, "keep_last_assistants": 1,
                    "keep_image_turns": 1, "argument_chars": 40, "hard_min_chars": 1_000},
        "tool_results": {"small_cap_chars": 1_200, "min_keep_chars": 200},
        "compaction": {"min_fold_tokens": 50},
    })
}

fn assembled(transcript: &Transcript, window_tokens: u64, is_cold: bool) -> (Plan, Plan) {
    let host = offline();
    let now_ms = 4_000_000_000_000;
    let last_touch_ms = Some(if is_cold { 1 } else { now_ms - 1 });
    host.set_prompt_cache(PromptCache { last_touch_ms, ..PromptCache::default() });
    let request = || AssembleRequest {
        model: ModelRef { window_tokens, ..ModelRef::default() },
        budget: window_tokens * 3 / 4,
        now_ms,
        ..AssembleRequest::default()
    };
    let first = engine(&host, &everything_on());
    let once = assemble(&first, transcript, request()).unwrap();
    let again = assemble(&engine(&host, &everything_on()), transcript, request()).unwrap();
    (once, again)
}

/// Positions of entries that the plan keeps in some form.
fn kept(plan: &Plan, transcript: &Transcript) -> HashSet<u64> {
    let items = plan.project(transcript);
    items.iter().filter_map(|item| Some(item.entry()?.seq())).collect()
}

/// Checks that frames are whole and protected entries are kept.
fn check_kept(plan: &Plan, transcript: &Transcript) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan_fault(plan, transcript), None);
    let kept = kept(plan, transcript);
    for entry in transcript.iter() {
        let together = (entry.frame()..entry.seq())
            .all(|other| kept.contains(&other) == kept.contains(&entry.seq()));
        prop_assert!(together, "the frame of {} is cut", entry.seq());
    }
    let newest = transcript.newest_user_message().map(|entry| entry.seq());
    let pinned = transcript.iter().filter(|entry| entry.has(Flags::PINNED)).map(|e| e.seq());
    let live = trailing_frame(transcript)..transcript.len() as u64;
    for seq in pinned.chain(newest).chain(live) {
        prop_assert!(kept.contains(&seq), "{} must stay", seq);
    }
    Ok(())
}

fn check_assembled(
    transcript: &Transcript,
    window_tokens: u64,
    is_cold: bool,
) -> Result<(), TestCaseError> {
    let (once, again) = assembled(transcript, window_tokens, is_cold);
    prop_assert_eq!(&once, &again, "the same bytes after a restart");
    check_kept(&once, transcript)?;
    prop_assert_eq!(kept(&once, transcript).len(), transcript.len(), "assembling only shortens");
    let tokens: u64 = once.project(transcript).iter().map(|item| item.tokens()).sum();
    prop_assert_eq!(once.estimated_tokens, tokens);
    prop_assert!(tokens <= transcript.total_tokens() + slack(transcript));
    for item in once.project(transcript) {
        let is_fixed = item.entry().is_some_and(|entry| entry.has(Flags::PINNED));
        prop_assert!(!is_fixed || matches!(item, ctxhost_engine_api::PlanItem::Kept(_)));
    }
    Ok(())
}

/// A line in place of a small image or an empty result may round up by a token.
fn slack(transcript: &Transcript) -> u64 {
    transcript.len() as u64
}

fn check_compacted(
    transcript: &Transcript,
    budget: u64,
    attempt: u32,
) -> Result<(), TestCaseError> {
    let request = || CompactRequest {
        budget,
        attempt,
        current_tokens: transcript.total_tokens(),
        model: ModelRef { window_tokens: budget * 4 / 3, ..ModelRef::default() },
        ..CompactRequest::default()
    };
    let run = || compact(&engine(&offline(), &everything_on()), transcript, request());
    let plan = match (run(), run()) {
        (Ok(Compaction::Plan(once)), Ok(Compaction::Plan(again))) => {
            prop_assert_eq!(&once, &again);
            once
        }
        (Ok(Compaction::Nothing { reason }), _) => {
            let is_known =
                ["no history", "the summary would"].iter().any(|known| reason.starts_with(known));
            prop_assert!(is_known, "{reason}");
            return Ok(());
        }
        (Err(error), _) => {
            prop_assert_eq!(error.kind, ErrorKind::CannotFit, "{}", error);
            return Ok(());
        }
        (other, _) => return Err(TestCaseError::fail(format!("{other:?}"))),
    };
    check_kept(&plan, transcript)?;
    let after: u64 = plan.project(transcript).iter().map(|item| item.tokens()).sum();
    prop_assert_eq!(plan.estimated_tokens, after);
    prop_assert!(after < transcript.total_tokens());
    let limit = budget * 95 / 100;
    prop_assert!(after <= limit || transcript.total_tokens() <= limit, "{} of {}", after, budget);
    Ok(())
}

/// A generated conversation, repeated until it is worth a compaction.
fn repeated(generated: &GeneratedTranscript, times: usize) -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("The first task.");
    for round in 0..times {
        for entry in &generated.entries {
            let mut entry = entry.clone();
            entry.id = format!("{round}-{}", entry.id);
            talk.push(entry);
        }
    }
    talk.transcript()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_transcript_in_any_window_assembles(
        generated in transcripts(), window_tokens in windows(), is_cold in any::<bool>(),
    ) {
        check_assembled(&generated.transcript(), window_tokens, is_cold)?;
    }

    #[test]
    fn any_transcript_compacts_honestly(
        generated in transcripts(), times in 1usize..8, share in 0.05f64..1.5, attempt in 1u32..4,
    ) {
        let transcript = repeated(&generated, times);
        let budget = (transcript.total_tokens() as f64 * share) as u64;
        check_compacted(&transcript, budget, attempt)?;
    }
}

#[derive(Clone, Debug)]
enum Step {
    User(usize),
    Assistant(usize),
    Tools(Vec<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1usize..600).prop_map(Step::User),
        2 => (1usize..1_500).prop_map(Step::Assistant),
        4 => prop::collection::vec(0usize..9_000, 1..4).prop_map(Step::Tools),
    ];
    prop::collection::vec(step, 20..60)
}

/// A working session: large results, long turns.
fn worked(steps: &[Step]) -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("The first task, pinned.");
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::User(size) => drop(talk.user(&format!("ask {at} {}", "w ".repeat(size / 2)))),
            Step::Assistant(size) => drop(talk.assistant(&"done so far ".repeat(size / 12 + 1))),
            Step::Tools(sizes) => {
                let ids: Vec<String> = (0..sizes.len()).map(|n| format!("{at}-{n}")).collect();
                let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "exec", "{}")).collect();
                talk.calls(&calls);
                for (id, size) in ids.iter().zip(sizes) {
                    talk.result(id, "exec", &"out ".repeat(size / 4));
                }
            }
        }
    }
    talk.transcript()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn working_sessions_assemble(steps in steps(), window in windows(), is_cold in any::<bool>()) {
        check_assembled(&worked(&steps), window, is_cold)?;
    }

    /// If the protected entries leave room, a compaction always succeeds.
    #[test]
    fn working_sessions_always_compact(
        steps in steps(), share in 0.2f64..0.9, attempt in 1u32..4,
    ) {
        let transcript = worked(&steps);
        let budget = ((transcript.total_tokens() as f64 * share) as u64).max(4_000);
        prop_assume!(transcript.total_tokens() > budget);
        check_compacted(&transcript, budget, attempt)?;
        let model = ModelRef { window_tokens: budget * 4 / 3, ..ModelRef::default() };
        let request = CompactRequest { budget, attempt, model, ..CompactRequest::default() };
        let answer = compact(&engine(&offline(), &json!({})), &transcript, request);
        prop_assert!(matches!(answer, Ok(Compaction::Plan(_))), "{:?}", answer);
    }
}
