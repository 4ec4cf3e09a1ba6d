//! Short requests that refer to what was said before: every bundled engine keeps what they decide.

use std::sync::Arc;

use ctxhost_engine::bundled;
use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on, plan_fault};
use ctxhost_engine_api::{AssembleRequest, CompactRequest, Compaction, ModelRef, Plan};
use serde_json::json;

/// Engines that choose what stays for each request.
const CHOOSING: [&str; 4] = ["window", "mask", "recall", "dag"];
/// Engines that compact.
const COMPACTING: [&str; 5] = ["recall", "dag", "legacy", "boundary", "head-tail"];

/// A request, what it answers, and the words that must stay.
const DECISIONS: [(&str, &str, &str); 6] = [
    (
        "Three stores:\n\n1. Redis\n2. Postgres 16 with replication\n3. files\n\nWhich one?",
        "the second one, from now on",
        "Postgres 16 with replication",
    ),
    (
        "The loop is wrong. I propose to cap it at 7 attempts.",
        "yes, do that",
        "cap it at 7 attempts",
    ),
    (
        "Option A: all at once\nOption B: blue-green by zeta-lb",
        "use option B",
        "blue-green by zeta-lb",
    ),
    (
        "Soll ich die Tabelle rechnungen umbenennen?",
        "ja, genau so",
        "Tabelle rechnungen umbenennen",
    ),
    (
        "The pipeline is done. Build 88417 passed.",
        "remember that build number",
        "Build 88417 passed",
    ),
    (
        "The cache evicts early.\n\nMy proposal: the lirs policy.",
        "go with your proposal",
        "the lirs policy",
    ),
];

fn open(id: &str) -> EngineHandle {
    bundled(id).unwrap().create(Arc::new(ScriptedHost::new()), &json!({})).unwrap()
}

fn model() -> ModelRef {
    ModelRef { window_tokens: 32_000, ..ModelRef::default() }
}

fn work(talk: &mut TranscriptBuilder, name: &str, rounds: usize) {
    for round in 0..rounds {
        let id = format!("{name}-{round}");
        talk.calls(&[(&id, "bash", r#"{"command":"make check"}"#)]);
        talk.result(&id, "bash", &format!("{name} value parser stream {round}\n").repeat(30));
    }
}

/// All decisions, with work behind each.
fn decisions(rounds: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("Port the billing service to Rust.").assistant("I begin with the storage layer.");
    for (at, (answer, request, _)) in DECISIONS.iter().enumerate() {
        work(&mut talk, &format!("early{at}"), 2);
        talk.assistant(answer).user(request);
    }
    for turn in 0..6 {
        work(&mut talk, &format!("late{turn}"), rounds);
        talk.assistant("The module is ported.");
        talk.user(&format!(
            "Port the module m{turn} next, keep its names, and run all of its tests."
        ));
    }
    work(&mut talk, "last", rounds);
    talk
}

fn seen(plan: &Plan, talk: &TranscriptBuilder) -> String {
    let transcript = talk.transcript();
    let texts = plan.project(&transcript).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64) -> Plan {
    let request = AssembleRequest { budget, model: model(), ..AssembleRequest::default() };
    let plan = block_on(engine.assemble(talk.transcript(), request)).unwrap();
    let transcript = talk.transcript();
    assert_eq!(plan_fault(&plan, &transcript), None);
    let tokens: u64 = plan.project(&transcript).iter().map(|item| item.tokens()).sum();
    assert!(tokens <= budget, "{tokens} of {budget}");
    assert_eq!(plan.estimated_tokens, tokens);
    plan
}

fn compact(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64) -> Plan {
    let current_tokens = talk.transcript().total_tokens();
    let request = CompactRequest {
        budget,
        current_tokens,
        attempt: 1,
        force: true,
        model: model(),
        ..CompactRequest::default()
    };
    let answer = block_on(engine.compact(talk.transcript(), request)).unwrap();
    let Compaction::Plan(plan) = answer else { panic!("{answer:?}") };
    plan
}

#[test]
fn what_short_requests_decide_stays_in_a_small_window() {
    let talk = decisions(4);
    for (id, budget) in CHOOSING.iter().flat_map(|id| [(id, 5_000), (id, 7_000)]) {
        let text = seen(&assemble(&open(id), &talk, budget), &talk);
        for (_, request, words) in DECISIONS {
            assert!(text.contains(words), "{id} in {budget}: {request}");
        }
    }
}

#[test]
fn what_short_requests_decide_stays_after_a_compaction() {
    let talk = decisions(4);
    for (id, budget) in COMPACTING.iter().flat_map(|id| [(id, 6_000), (id, 9_000)]) {
        let text = seen(&compact(&open(id), &talk, budget), &talk);
        for (_, request, words) in DECISIONS {
            assert!(text.contains(words), "{id} in {budget}: {request}");
        }
    }
}

/// The newest request must stay as it is; the work on it fills the window.
#[test]
fn what_the_newest_request_decides_stays_beside_the_work_on_it() {
    for (answer, request, words) in DECISIONS {
        let mut talk = TranscriptBuilder::new();
        talk.user("Port the billing service to Rust.").assistant("I begin.");
        work(&mut talk, "early", 4);
        talk.assistant(answer).user(request);
        work(&mut talk, "late", 40);
        for id in CHOOSING {
            let text = seen(&assemble(&open(id), &talk, 5_000), &talk);
            assert!(text.contains(words), "{id}: {request}");
        }
        for id in COMPACTING {
            let text = seen(&compact(&open(id), &talk, 6_000), &talk);
            assert!(text.contains(words), "{id}, compacted: {request}");
        }
    }
}

#[test]
fn what_is_kept_itself_is_not_repeated() {
    let (answer, request, words) = DECISIONS[1];
    let mut talk = TranscriptBuilder::new();
    talk.user("Port it.").assistant("I begin.");
    work(&mut talk, "early", 40);
    talk.assistant(answer).user(request).assistant("It is capped.");
    for id in CHOOSING {
        let text = seen(&assemble(&open(id), &talk, 5_000), &talk);
        assert_eq!(text.matches(words).count(), 1, "{id}");
    }
}

#[test]
fn a_restart_shows_the_same() {
    let talk = decisions(4);
    for id in CHOOSING {
        let host = ScriptedHost::new();
        let create = || bundled(id).unwrap().create(Arc::new(host.clone()), &json!({})).unwrap();
        let plan = assemble(&create(), &talk, 5_000);
        assert_eq!(assemble(&create(), &talk, 5_000), plan, "{id}");
    }
}
