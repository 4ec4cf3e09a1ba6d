//! What holds for every conversation, however odd, and every budget. Conversations are generated; one
//! that fails is shrunk to the smallest that still does.

use std::collections::BTreeSet;

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::testing::proptest::prelude::*;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{
    AssembleRequest, ContextEngine, Entry, EntryKind, Flags, Plan, PlanItem, Transcript,
};

use @lib@::Engine;

/// What the engine answers for a budget.
fn assemble(transcript: &Transcript, budget: u64) -> Plan {
    let engine =
        Engine::create(ScriptedHost::new().handle(), json!({})).expect("the defaults work");
    let request = AssembleRequest { budget, ..AssembleRequest::default() };
    block_on(engine.assemble(transcript.clone(), request)).expect("it always answers")
}

/// The frames that no plan may leave out.
fn must_stay(transcript: &Transcript) -> BTreeSet<u64> {
    let stays = |entry: &Entry<'_>| {
        entry.has(Flags::PINNED) || entry.kind() == EntryKind::CompactionSummary
    };
    let newest = transcript.newest_user_message().into_iter().chain(transcript.last());
    transcript.iter().filter(stays).chain(newest).map(|entry| entry.frame()).collect()
}

proptest! {
    #[test]
    fn plans_are_sound_and_the_same_again(generated in transcripts(), budget in 0..4_000_u64) {
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
        prop_assert!(must_stay(&transcript).is_subset(&kept));
    }

    #[test]
    fn plans_fit_unless_what_must_stay_does_not(
        generated in transcripts(),
        budget in 0..4_000_u64,
    ) {
        let transcript = generated.transcript();
        let cost: u64 = assemble(&transcript, budget).project(&transcript).iter().map(PlanItem::tokens).sum();
        let frames = must_stay(&transcript);
        let held = transcript.iter().filter(|entry| frames.contains(&entry.frame()));
        let least: u64 = held.map(|entry| entry.tokens()).sum();
        prop_assert!(cost <= budget.max(least), "{} of {}, {} must stay", cost, budget, least);
    }
}

/// A prefix that changes with every request is paid for with every request.
#[test]
fn most_requests_begin_with_the_one_before() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Rename the field everywhere.");
    let (mut before, mut steady, rounds) = (Vec::new(), 0, 100);
    for round in 0..rounds {
        let call = format!("call-{round}");
        talk.calls(&[(&call, "read", r#"{"path":"src/lib.rs"}"#)]);
        talk.result(&call, "read", &"a line of the file\n".repeat(20));
        let transcript = talk.transcript();
        let plan = assemble(&transcript, 4_000);
        let shown: Vec<String> =
            plan.project(&transcript).iter().map(|item| item.text().into_owned()).collect();
        steady += usize::from(shown.starts_with(&before));
        before = shown;
    }
    assert!(steady * 4 >= rounds * 3, "{steady} of {rounds}");
}
