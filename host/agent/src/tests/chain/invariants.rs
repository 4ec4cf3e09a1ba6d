//! Every chain of two bundled engines satisfies the invariants, deterministically.

use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::{BootstrapRequest, IngestRequest, Plan, Transcript};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRng, TestRunner};
use serde_json::json;

use super::fixture::{assemble, open_chain, request, session};
use ctxhost_engine::{ActiveEngine, BUNDLED, EngineSpec};
use ctxhost_invariants as invariants;

/// Generated sessions per pair, and the budgets of requests.
const SESSIONS: usize = 12;
const BUDGETS: [u64; 3] = [600, 3_000, 40_000];

fn pair(first: &str, second: &str) -> ActiveEngine {
    open_chain(&[first, second].map(|id| EngineSpec::bundled(id, settings(id))))
}

/// Disables the window guard of `legacy`, which rejects the small windows of these tests.
fn settings(id: &str) -> serde_json::Value {
    match id {
        "legacy" => json!({ "window": { "block_tokens": 1, "warn_tokens": 1 } }),
        _ => json!({}),
    }
}

async fn shape(chain: &ActiveEngine, view: &Transcript, budget: u64) -> (String, Plan) {
    let begin = BootstrapRequest { session: session(), ..BootstrapRequest::default() };
    chain.bootstrap(view, begin).await.unwrap();
    let entries = 0..view.len() as u64;
    let events = IngestRequest { session: session(), entries, ..IngestRequest::default() };
    chain.ingest(view, events).await.unwrap();
    let (staged, checked) = assemble(chain, view, budget).await;
    let engine = staged.engine;
    let violations = invariants::verify(view, &checked.items(view), u64::MAX);
    assert_eq!(violations, vec![], "{engine} at {budget}: {:#?}", request(budget));
    (engine, checked.plan)
}

#[tokio::test]
async fn all_pairs_of_bundled_engines_satisfy_the_invariants() {
    let rng = TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let sessions: Vec<Transcript> = (0..SESSIONS)
        .map(|_| transcripts().new_tree(&mut runner).unwrap().current().transcript())
        .collect();
    for first in BUNDLED {
        for second in BUNDLED.into_iter().filter(|second| *second != first) {
            let (one, two) = (pair(first, second), pair(first, second));
            for (view, budget) in sessions.iter().zip(BUDGETS.into_iter().cycle()) {
                let (engine, plan) = shape(&one, view, budget).await;
                assert!(!engine.is_empty());
                assert_eq!(shape(&two, view, budget).await, (engine, plan), "{first}+{second}");
            }
            assert_eq!(one.quarantine_record(), None, "{first}+{second}");
        }
    }
}
