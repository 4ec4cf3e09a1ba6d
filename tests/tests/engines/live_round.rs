//! A newest round that is larger than the budget: every bundled engine cuts its results by itself.

use std::sync::Arc;

use ctxhost_engine::bundled;
use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{AssembleRequest, CompactRequest, Compaction, ModelRef, Plan, Role};
use ctxhost_invariants::progress;
use serde_json::json;

/// The engines that cut the newest round; the host trims it for `head-tail`.
const ENGINES: [&str; 6] = ["window", "mask", "recall", "dag", "legacy", "boundary"];

/// An engine with its default settings.
fn open(id: &str) -> EngineHandle {
    bundled(id).unwrap().create(Arc::new(ScriptedHost::new()), &json!({})).unwrap()
}

fn model() -> ModelRef {
    ModelRef { window_tokens: 32_000, ..ModelRef::default() }
}

fn assemble(engine: &EngineHandle, talk: &TranscriptBuilder, budget: u64) -> Plan {
    let request = AssembleRequest { budget, model: model(), ..AssembleRequest::default() };
    block_on(engine.assemble(talk.transcript(), request)).unwrap()
}

/// A request, and calls whose results have some lines each.
fn round(lines: &[usize]) -> TranscriptBuilder {
    let ids: Vec<String> = (0..lines.len()).map(|at| format!("c{at}")).collect();
    let mut talk = TranscriptBuilder::new();
    talk.user("Read the files.");
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "read", r#"{"path":"a.rs"}"#)).collect();
    talk.calls(&calls);
    for (id, lines) in ids.iter().zip(lines) {
        let text: String =
            (0..*lines).map(|line| format!("{line:>6} let value = {id};\n")).collect();
        talk.result(id, "read", &text);
    }
    talk
}

#[test]
fn a_round_above_the_budget_fits_and_keeps_its_results() {
    for lines in [&[3_000][..], &[400, 3_000], &[900, 900, 900, 900], &[200; 40]] {
        let talk = round(lines);
        let transcript = talk.transcript();
        for (id, budget) in ENGINES.iter().flat_map(|id| [(id, 9_000), (id, 5_000)]) {
            let plan = assemble(&open(id), &talk, budget);
            let items = plan.project(&transcript);
            let tokens: u64 = items.iter().map(|item| item.tokens()).sum();
            let case = format!("{id} with {} results in {budget}", lines.len());
            assert!(tokens <= budget, "{case}: {tokens}");
            assert_eq!(plan.estimated_tokens, tokens, "{case}");
            let results = items.iter().filter(|item| item.role() == Role::Tool);
            assert_eq!(results.count(), lines.len(), "{case}");
            let newest = items.last().unwrap().text().into_owned();
            // `legacy` clears a result that alone takes half of the window.
            let is_shown = newest.contains("let value") || newest.starts_with("[compacted");
            assert!(is_shown, "{case}: {newest}");
            assert!(tokens >= budget / 4 || newest.starts_with("[compacted"), "{case}: {tokens}");
        }
    }
}

#[test]
fn a_round_that_fits_stays_whole() {
    let talk = round(&[200, 100]);
    for id in ENGINES {
        let plan = assemble(&open(id), &talk, 9_000);
        assert_eq!(plan.project(&talk.transcript()).len(), 4, "{id}");
        assert_eq!(plan.estimated_tokens, talk.transcript().total_tokens(), "{id}");
    }
}

#[test]
fn a_restart_cuts_the_same() {
    let session = || {
        let mut talk = TranscriptBuilder::new();
        for number in 0..30 {
            talk.user(&format!("question {number}")).assistant(&"an answer ".repeat(40));
        }
        talk.user("Read it.").calls(&[("big", "read", "{}")]);
        talk.result("big", "read", &"text\n".repeat(9_000));
        talk
    };
    for id in ["window", "mask", "recall", "dag"] {
        let host = ScriptedHost::new();
        let create = || bundled(id).unwrap().create(Arc::new(host.clone()), &json!({})).unwrap();
        let engine = create();
        assemble(&engine, &session(), 5_000);
        let mut later = session();
        later.calls(&[("next", "ls", "{}")]).result("next", "ls", "a.rs");
        let plan = assemble(&engine, &later, 5_000);
        assert_eq!(assemble(&create(), &later, 5_000), plan, "{id}");
        let transcript = later.transcript();
        let items = plan.project(&transcript);
        let big = items.iter().find(|item| item.text().starts_with("text"));
        assert!(big.is_some_and(|item| item.tokens() > 1_000), "{id}: the cut stays");
    }
}

/// One turn of a request and many rounds: there is nothing before it to fold.
#[test]
fn a_requested_compaction_without_whole_turns_shortens_results() {
    for (budget, lines) in [(9_000, 3_000), (30_000, 1_000)] {
        let talk = round(&[lines]);
        let before = talk.transcript().total_tokens();
        for id in ["recall", "dag", "legacy", "boundary", "head-tail"] {
            let request = CompactRequest {
                budget,
                force: true,
                attempt: 1,
                model: model(),
                ..Default::default()
            };
            let answer = block_on(open(id).compact(talk.transcript(), request)).unwrap();
            let Compaction::Plan(plan) = answer else { panic!("{id}: {answer:?}") };
            let after: u64 =
                plan.project(&talk.transcript()).iter().map(|item| item.tokens()).sum();
            let progress = progress::check_progress(before, after, budget, &Default::default());
            assert_eq!(progress, Ok(()), "{id}: {before} to {after} in {budget}");
        }
    }
}
