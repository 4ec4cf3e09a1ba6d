//! Every two bundled engines in a row keep the law, and say the same twice.

use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::{BootstrapRequest, IngestRequest, Plan, Transcript};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRng, TestRunner};
use serde_json::json;

use super::stage::{request, session, shaped, stack};
use ctxhost_engine::{ActiveEngine, BUNDLED, EngineSpec};
use ctxhost_invariants as invariants;

/// Generated sessions for each pair, and what a request may take in them.
const SESSIONS: usize = 12;
const BUDGETS: [u64; 3] = [600, 3_000, 40_000];

fn pair(first: &str, second: &str) -> ActiveEngine {
    stack(&[first, second].map(|id| EngineSpec::bundled(id, settings(id))))
}

/// Without its guard, `legacy` refuses the small windows of these tests.
fn settings(id: &str) -> serde_json::Value {
    match id {
        "legacy" => json!({ "window": { "block_tokens": 1, "warn_tokens": 1 } }),
        _ => json!({}),
    }
}

async fn shape(stack: &ActiveEngine, view: &Transcript, budget: u64) -> (String, Plan) {
    let begin = BootstrapRequest { session: session(), ..BootstrapRequest::default() };
    stack.bootstrap(view, begin).await.unwrap();
    let entries = 0..view.len() as u64;
    let news = IngestRequest { session: session(), entries, ..IngestRequest::default() };
    stack.ingest(view, news).await.unwrap();
    let (staged, lawful) = shaped(stack, view, budget).await;
    let engine = staged.engine;
    let breaches = invariants::verify(view, &lawful.items(view), u64::MAX);
    assert_eq!(breaches, vec![], "{engine} at {budget}: {:#?}", request(budget));
    (engine, lawful.plan)
}

#[tokio::test]
async fn all_pairs_of_bundled_engines_keep_the_law() {
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
