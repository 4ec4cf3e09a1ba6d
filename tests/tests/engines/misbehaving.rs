//! Engines that panic, hang, fail or return invalid plans: the host survives, and reports name who shaped the
//! request.

use std::time::{Duration, Instant};

use ctxhost_agent::OfflineOptions;
use ctxhost_agent::replay::replay;
use ctxhost_agent::replay::report::EngineRun;
use ctxhost_config::Config;
use ctxhost_context::{Budget, ContextError, Target};
use ctxhost_engine::{EngineSpec, EngineTimeouts, OnEngineError};
use ctxhost_session::Session;
use ctxhost_tests::{chaos_library, recorded_session};
use serde_json::json;

/// Small enough for pressure in every turn.
const TIGHT_TOKENS: u64 = 20_000;
/// Large enough for the largest round of tools in the recording, which this engine cannot shorten.
const ROOMY_TOKENS: u64 = 60_000;

fn options(budget_tokens: u64, on_error: OnEngineError) -> OfflineOptions {
    let target = Target {
        window_tokens: budget_tokens * 8 / 5,
        budget: Some(Budget { tokens: budget_tokens, reserve_tokens: 8_000, spare_tokens: 0 }),
        ..Target::default()
    };
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let mut options = OfflineOptions::new(&Config::default(), legacy, target);
    options.engines.on_error = on_error;
    options.engines.timeouts =
        EngineTimeouts { assemble_ms: 300, create_ms: 2_000, ..EngineTimeouts::default() };
    options
}

fn chaos(mode: &str, on_error: OnEngineError) -> Result<EngineRun, ContextError> {
    chaos_within(TIGHT_TOKENS, mode, on_error)
}

fn chaos_within(
    budget_tokens: u64,
    mode: &str,
    on_error: OnEngineError,
) -> Result<EngineRun, ContextError> {
    let spec = EngineSpec::file("chaos", &chaos_library(), json!({ "mode": mode }));
    let session = Session::parse("recorded", &recorded_session()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(replay(&session, &spec, &options(budget_tokens, on_error), |_| {}))
}

/// With `fallback` the bundled engine serves every request, lawfully, and the report says why; with
/// `fail` the first request fails with the reason.
fn breaks(mode: &str, says: &str) {
    let run = chaos(mode, OnEngineError::Fallback).unwrap();
    assert!(run.totals.requests > 50);
    assert_eq!(run.totals.violations, 0);
    assert_eq!(run.totals.fallbacks, run.totals.requests, "{mode}");
    assert!(run.totals.quarantine.contains(says), "{mode}: {:?}", run.totals.quarantine);
    assert_eq!(run.engine.id, "chaos");
    for turn in run.turns.iter().filter(|turn| turn.requests > 0) {
        assert!(!turn.shaped_by.contains(&"chaos".to_owned()), "{mode}: {:?}", turn.shaped_by);
    }
    let error = chaos(mode, OnEngineError::Fail).expect_err("on_engine_error = fail").to_string();
    assert!(error.contains(says) && error.contains("chaos"), "{mode}: {error}");
}

#[test]
fn the_engine_serves_while_it_is_good() {
    let run = chaos_within(ROOMY_TOKENS, "good", OnEngineError::Fail).unwrap();
    assert_eq!((run.totals.fallbacks, run.totals.violations), (0, 0));
    assert!(run.turns.iter().any(|turn| turn.shaped_by == ["chaos"]));
}

#[test]
fn panics() {
    breaks("panic-assemble", ": chaos: panic in assemble");
    breaks("panic-ingest", ": chaos: panic in ingest");
    breaks("drop-future", ": chaos: panic in drop");
}

#[test]
fn a_panic_names_its_place() {
    breaks("panic-assemble", "panicked at src/lib.rs:86: chaos");
}

#[test]
fn errors() {
    breaks("error-assemble", "chaos: cannot assemble");
}

#[test]
fn answers_that_never_come() {
    breaks("hang-assemble", "ms (timeouts.assemble_ms)");
    breaks("block-assemble", "ms (timeouts.assemble_ms)");
}

#[test]
fn an_endless_loop_costs_its_own_thread_and_no_more() {
    let began = Instant::now();
    breaks("spin-assemble", "ms (timeouts.assemble_ms); its thread hangs");
    assert!(began.elapsed() < Duration::from_secs(60), "the host waited for the loop");
}

#[test]
fn plans_that_are_no_plans() {
    breaks("out-of-range", "");
    breaks("overlap", "");
}

#[test]
fn a_plan_that_splits_every_pair_is_mended_and_counted() {
    let run = chaos("split-pairs", OnEngineError::Fallback).unwrap();
    assert_eq!(run.totals.violations, 0);
    assert!(run.totals.repairs > 0, "the repairs are counted");
}

#[test]
fn a_plan_of_nothing_still_shows_the_model_what_it_must_see() {
    let run = chaos("nothing", OnEngineError::Fallback).unwrap();
    assert_eq!(run.totals.violations, 0);
    assert!(run.curve.iter().all(|point| point.tokens > 0), "the keep law put something back");
}

#[test]
fn an_engine_may_ask_for_a_compaction_before_it_is_due() {
    let run = chaos_within(ROOMY_TOKENS, "wants-compaction", OnEngineError::Fail).unwrap();
    let early = run.compactions.iter().find(|row| row.applied);
    let early = early.unwrap_or_else(|| panic!("none was applied: {:?}", run.compactions));
    assert_eq!(early.engine, "chaos");
    assert!(early.before_tokens > early.after_tokens);
    assert_eq!(run.totals.violations, 0);
}
