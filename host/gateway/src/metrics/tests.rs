//! Metrics appear in the exported text under stable names, which external dashboards query.

use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::*;

fn assembled(engine: &str, fallback: Option<&str>) -> EventKind {
    EventKind::Assembled {
        engine: engine.into(),
        fallback: fallback.map(Into::into),
        tokens: 700,
        budget_tokens: 1_000,
        model: "x/y".into(),
        live_tokens: 1_000,
        rejected_plans: 2,
        took: Duration::from_micros(300),
    }
}

fn compaction(verdict: CompactionVerdict) -> EventKind {
    EventKind::Compaction(Arc::new(CompactionOutcome {
        trigger: Trigger::Overflow,
        engine: "mask".into(),
        verdict,
        before_tokens: 900,
        after_tokens: 400,
        folded: Vec::new(),
        summary: "a secret word".into(),
        engine_notes: String::new(),
        retention: None,
        fallback: None,
        is_precomputed: false,
        took: Duration::ZERO,
    }))
}

#[track_caller]
fn check(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text();
    let missing: Vec<_> =
        lines.iter().filter(|line| !text.lines().any(|it| it == **line)).collect();
    assert!(missing.is_empty(), "{missing:?} not in\n{text}");
}

#[test]
fn counters_are_exported_at_zero() {
    let metrics = Metrics::new("mask");
    check(
        &metrics,
        &[
            r#"ctxhost_engine_active{slot="context_engine",configured="mask",active="mask"} 1"#,
            r#"ctxhost_fallback_total{engine="mask"} 0"#,
            r#"ctxhost_rejected_plans_total{engine="mask"} 0"#,
            "ctxhost_saved_tokens_total 0",
            r#"ctxhost_session_file_lost_total{outcome="recreated"} 0"#,
            "# EOF",
        ],
    );
}

#[test]
fn only_the_active_engine_is_exported() {
    let metrics = Metrics::new("mask");
    metrics.record_event(&assembled("legacy", Some("it panicked")), 0);
    let legacy =
        r#"ctxhost_engine_active{slot="context_engine",configured="mask",active="legacy"} 1"#;
    check(
        &metrics,
        &[
            legacy,
            r#"ctxhost_fallback_total{engine="mask"} 1"#,
            r#"ctxhost_rejected_plans_total{engine="mask"} 2"#,
            r#"ctxhost_engine_duration_seconds_count{engine="legacy"} 1"#,
        ],
    );
    assert_eq!(metrics.text().matches("ctxhost_engine_active{").count(), 1);
    metrics.record_event(
        &EventKind::EngineChanged {
            engine: "window".into(),
            previous: "mask".into(),
            generation: 2,
        },
        0,
    );
    metrics.record_event(&assembled("window", None), 0);
    check(
        &metrics,
        &[
            r#"ctxhost_engine_active{slot="context_engine",configured="window",active="window"} 1"#,
            r#"ctxhost_fallback_total{engine="window"} 0"#,
        ],
    );
    assert_eq!(metrics.text().matches("ctxhost_engine_active{").count(), 1);
}

#[test]
fn unshaped_requests_are_counted_by_reason() {
    let metrics = Metrics::new("mask");
    metrics.record_unshaped("failed");
    metrics.record_unshaped("failed");
    check(
        &metrics,
        &[
            r#"ctxhost_unshaped_total{reason="failed"} 2"#,
            r#"ctxhost_unshaped_total{reason="unparsed"} 0"#,
        ],
    );
}

#[test]
fn compactions_are_counted_by_outcome() {
    let metrics = Metrics::new("mask");
    metrics.record_event(&compaction(CompactionVerdict::Applied), 500);
    metrics.record_event(&compaction(CompactionVerdict::Rejected { reason: "grew".into() }), 500);
    metrics.record_event(&compaction(CompactionVerdict::Rejected { reason: "grew".into() }), 500);
    check(
        &metrics,
        &[
            r#"ctxhost_compaction_total{engine="mask",trigger="overflow",outcome="applied"} 1"#,
            r#"ctxhost_compaction_total{engine="mask",trigger="overflow",outcome="rejected"} 2"#,
        ],
    );
    assert_eq!(metrics.totals().compactions, 1);
    assert!(!metrics.text().contains("secret"));
}

#[test]
fn saved_tokens_are_those_of_the_conversation_that_were_not_sent() {
    let metrics = Metrics::new("mask");
    metrics.record_event(&assembled("mask", None), 0);
    metrics.record_event(&assembled("mask", None), 500);
    assert_eq!(metrics.totals().saved_tokens, 300 + 300 + 500);
}

#[test]
fn responses_are_counted_by_dialect_and_status() {
    let metrics = Metrics::new("mask");
    let usage = TokenUsage {
        input: 10,
        output: 3,
        cache_read: 90,
        cache_write: 7,
        ..TokenUsage::default()
    };
    metrics.request_started();
    check(&metrics, &["ctxhost_in_flight 1"]);
    metrics.response_started("openai-completions", 200, Duration::from_millis(20));
    metrics.record_usage("openai-completions", &usage);
    metrics.request_ended("openai-completions", Duration::from_millis(700), true);
    metrics.request_started();
    metrics.response_started("openai-completions", 529, Duration::from_millis(20));
    metrics.request_ended("openai-completions", Duration::from_millis(20), false);
    check(
        &metrics,
        &[
            "ctxhost_in_flight 0",
            r#"ctxhost_request_total{dialect="openai-completions",status="200"} 1"#,
            r#"ctxhost_request_total{dialect="openai-completions",status="529"} 1"#,
            r#"ctxhost_aborted_responses_total{dialect="openai-completions"} 1"#,
            r#"ctxhost_first_byte_duration_seconds_bucket{le="0.05",dialect="openai-completions"} 2"#,
            r#"ctxhost_request_duration_seconds_bucket{le="0.5",dialect="openai-completions"} 1"#,
            r#"ctxhost_request_duration_seconds_count{dialect="openai-completions"} 2"#,
            r#"ctxhost_input_tokens_total{dialect="openai-completions"} 10"#,
            r#"ctxhost_output_tokens_total{dialect="openai-completions"} 3"#,
            r#"ctxhost_cache_read_tokens_total{dialect="openai-completions"} 90"#,
            r#"ctxhost_cache_write_tokens_total{dialect="openai-completions"} 7"#,
        ],
    );
}

#[test]
fn token_counts_of_an_upstream_without_bound_do_not_overflow_the_totals() {
    let metrics = Metrics::new("mask");
    let usage = TokenUsage { input: u64::MAX, output: u64::MAX, ..TokenUsage::default() };
    metrics.record_usage("openai-completions", &usage);
    metrics.record_usage("openai-completions", &usage);
    assert_eq!(metrics.totals().usage.output_tokens, u64::MAX);
}

#[test]
fn the_document_lists_all_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway/watching.md");
    let document = std::fs::read_to_string(path).unwrap();
    let metrics = Metrics::new("mask");
    metrics.record_event(&assembled("mask", None), 0);
    metrics.record_event(&compaction(CompactionVerdict::Applied), 0);
    metrics.response_started("openai-completions", 200, Duration::ZERO);
    metrics.record_usage("openai-completions", &TokenUsage::default());
    metrics.request_ended("openai-completions", Duration::ZERO, false);
    let text = metrics.text();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut count = 0;
    for family in families {
        let (name, kind) = family.split_once(' ').unwrap();
        let name = if kind == "counter" { format!("`{name}_total`") } else { format!("`{name}`") };
        assert!(document.contains(&name), "{name} is missing in docs/gateway/watching.md");
        count += 1;
    }
    let rows = document.lines().filter(|line| line.starts_with("| `ctxhost_"));
    let documented: usize = rows.map(|row| row.matches("`ctxhost_").count()).sum();
    assert_eq!(count, documented, "the document lists metrics that are not exported");
}
