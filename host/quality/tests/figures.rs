//! Tests that the harness reproduces published figures, and that `recall` keeps its level.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

use std::path::Path;

use ctxhost_config::Config;
use ctxhost_quality::{
    BenchSubject, LabelledQuestion, RuleOptions, measure_evidence, measure_rules, parse_questions,
};

/// The questions of a fixture; `None`, with a note, if it does not exist.
fn questions(name: &str) -> Option<Vec<LabelledQuestion>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/fixtures/longmemeval")
        .join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(parse_questions(&bytes).unwrap()),
        Err(error) => {
            eprintln!("SKIPPED: {}: {error}", path.display());
            None
        }
    }
}

async fn recall_percent(name: &str, questions: &[LabelledQuestion], budget_tokens: u64) -> f64 {
    let config = Config::default();
    let subject = BenchSubject::parse(name, &config).unwrap();
    let rows = measure_evidence("f", questions, &subject, &[budget_tokens], &config, |_| ()).await;
    let row = rows.unwrap().rows.remove(0);
    assert_eq!((row.run.overruns, row.run.violations, row.run.differing), (0, 0, 0), "{name}");
    row.recall_percent
}

#[tokio::test]
async fn baselines_have_the_published_figures() {
    let Some(questions) = questions("lme_dev.jsonl.zst") else { return };
    for (name, published) in [("tail", 7.6), ("bm25", 88.7), ("bm25-neighbours", 89.9)] {
        let measured = recall_percent(name, &questions, 8_000).await;
        assert!((measured - published).abs() < 2.0, "{name}: {measured}, published {published}");
    }
}

#[tokio::test]
async fn recall_keeps_more_evidence_than_any_baseline() {
    let Some(questions) = questions("lme_mini_dev.jsonl.zst") else { return };
    let recall = recall_percent("recall", &questions, 4_000).await;
    assert!(recall >= 92.0, "{recall}");
    assert!(recall > recall_percent("bm25", &questions, 4_000).await);
    assert!(recall_percent("window", &questions, 4_000).await < 50.0);
}

#[tokio::test]
async fn active_rules_survive_compactions() {
    let config = Config::default();
    for engine in ["recall", "dag", "legacy", "mask", "boundary", "head-tail"] {
        let subject = BenchSubject::parse(engine, &config).unwrap();
        let options = RuleOptions { sessions: 6, seed: 77, ..RuleOptions::default() };
        let row = measure_rules(&subject, options, &config, |_| ()).await.unwrap().unwrap();
        assert_eq!((row.sessions_kept, row.stale_only, row.applied), (6, 0, 30), "{row:?}");
        assert!(engine != "recall" || row.stale == 0, "{row:?}");
    }
}
