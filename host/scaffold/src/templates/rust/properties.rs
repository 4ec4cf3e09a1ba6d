//! Properties of the engine for generated conversations and budgets. Failing cases are shrunk.

use std::collections::BTreeSet;

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::testing::proptest::prelude::*;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{
    AssembleRequest, ContextEngine, Entry, EntryKind, Flags, Plan, PlanItem, Transcript,
};

use @lib@::Engine;

/// The plan of the engine for a budget.
fn assemble(transcript: &Transcript, budget: u64) -> Plan {
    let engine = Engine::create(ScriptedHost::new().handle(), json!({})).expect("create succeeds");
    let request = AssembleRequest { budget, ..AssembleRequest::default() };
    block_on(engine.assemble(transcript.clone(), request)).expect("assemble succeeds")
}

/// The frames that every plan must keep.
fn pinned_frames(transcript: &Transcript) -> BTreeSet<u64> {
    let is_pinned = |entry: &Entry<'_>| {
        entry.has(Flags::PINNED) || entry.kind() == EntryKind::CompactionSummary
    };
    let newest = transcript.newest_user_message().into_iter().chain(transcript.last());
    transcript.iter().filter(is_pinned).chain(newest).map(|entry| entry.frame()).collect()
}

proptest! {
    #[test]
    fn plans_are_valid_and_deterministic(generated in transcripts(), budget in 0..4_000_u64) {
        let transcript = generated.transcript();
        let plan = assemble(&transcript, budget);
        prop_assert_eq!(plan_fault(&plan, &transcript), None);
        prop_assert_eq!(assemble(&transcript, budget), plan);
    }

    #[test]
    fn calls_and_results_stay_together(generated in transcripts(), budget in 0..4_000_u64) {
        let transcript = generated.transcript();
        let plan = assemble(&transcript, budget);
        let items = plan.project(&transcript);
        let kept: BTreeSet<u64> = items.iter().filter_map(|i| i.entry()).map(|e| e.seq()).collect();
        for entry in transcript.iter() {
            prop_assert_eq!(kept.contains(&entry.seq()), kept.contains(&entry.frame()));
        }
        prop_assert!(pinned_frames(&transcript).is_subset(&kept));
    }

    #[test]
    fn plans_fit_unless_the_pinned_frames_do_not(
        generated in transcripts(),
        budget in 0..4_000_u64,
    ) {
        let transcript = generated.transcript();
        let cost: u64 = assemble(&transcript, budget).project(&transcript).iter().map(PlanItem::tokens).sum();
        let frames = pinned_frames(&transcript);
        let pinned = transcript.iter().filter(|entry| frames.contains(&entry.frame()));
        let least: u64 = pinned.map(|entry| entry.tokens()).sum();
        prop_assert!(cost <= budget.max(least), "{} of {}, {} pinned", cost, budget, least);
    }
}

/// Providers charge the full price for a prefix that changes.
#[test]
fn most_requests_extend_the_previous_one() {
    let mut builder = TranscriptBuilder::new();
    builder.user("Rename the field everywhere.");
    let (mut before, mut steady, rounds) = (Vec::new(), 0, 100);
    for round in 0..rounds {
        let call = format!("call-{round}");
        builder.calls(&[(&call, "read", r#"{"path":"src/lib.rs"}"#)]);
        builder.result(&call, "read", &"a line of the file\n".repeat(20));
        let transcript = builder.transcript();
        let plan = assemble(&transcript, 4_000);
        let texts: Vec<String> =
            plan.project(&transcript).iter().map(|item| item.text().into_owned()).collect();
        steady += usize::from(texts.starts_with(&before));
        before = texts;
    }
    assert!(steady * 4 >= rounds * 3, "{steady} of {rounds}");
}
