//! Who is left out, and how loudly.

use ctxhost_engine_api::testing::generate::Script;
use ctxhost_engine_api::{ErrorKind, Transcript};

use super::stage::*;
use ctxhost_engine::{ChainSpecError, EngineSpec, OnEngineError, OnRefusal, SlotError};

fn view() -> Transcript {
    Script::new().user("task").assistant("yes").user("so?").finish().transcript()
}

#[tokio::test]
async fn a_stage_that_fails_is_left_out_and_named() {
    for does in ["fails in assemble", "fails in ingest", "fails in create", "lies"] {
        let test = format!("left out: {does}");
        let stack =
            stack(&[puppet::<0>(&test, ""), puppet::<1>(&test, does), puppet::<2>(&test, "")]);
        assert_eq!(stack.configured_id(), "first+second+third");
        for _ in 0..2 {
            let (staged, _) = shaped(&stack, &view(), BUDGET).await;
            assert_eq!(staged.engine, "first+third", "{does}");
            assert_eq!(staged.version, "first 1.0.0 + third 1.0.0");
            let why = staged.fallback.unwrap();
            assert!(why.starts_with("second failed in "), "{does}: {why}");
        }
        assert_eq!(stack.quarantine_record().unwrap().id, "second");
        assert_eq!(stack.serving_info().id, "first+third");
    }
}

#[tokio::test]
async fn the_last_stage_is_held_against_the_law_of_the_whole() {
    let stack = stack(&[puppet::<0>("last", "shortens"), puppet::<1>("last", "lies")]);
    let (staged, _) = shaped(&stack, &view(), BUDGET).await;
    assert_eq!(staged.engine, "first");
    assert!(staged.fallback.unwrap().starts_with("second failed in assemble: operation 0"));
}

#[tokio::test]
async fn whoever_wants_to_hear_of_a_refused_plan_does_and_the_engine_is_asked_again() {
    let test = "told";
    let engines = [puppet::<0>(test, "lies"), puppet::<1>(test, "")];
    let stack = open(&engines, OnEngineError::Fail).unwrap();
    for _ in 0..2 {
        match judged(&stack, &view(), BUDGET, OnRefusal::Report).await {
            Err(SlotError::Refused { id, reason }) => {
                assert_eq!(id, "first");
                assert!(reason.starts_with("operation 0"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert!(stack.quarantine_record().is_none());
    }
}

#[tokio::test]
async fn lifted_it_serves_again() {
    let stack = stack(&[puppet::<0>("lift", ""), puppet::<1>("lift", "fails in assemble")]);
    shaped(&stack, &view(), BUDGET).await;
    let serving = stack.serving();
    assert_eq!(stack.release_quarantine().unwrap().id, "second");
    assert_eq!(stack.serving_info().id, "first+second");
    assert_ne!(stack.serving(), serving, "sessions are told anew");
}

#[tokio::test]
async fn where_no_stage_is_left_the_bundled_engine_serves() {
    let does = "fails in assemble";
    let stack = stack(&[puppet::<0>("none", does), puppet::<1>("none", does)]);
    for _ in 0..2 {
        let (staged, _) = shaped(&stack, &view(), BUDGET).await;
        assert_eq!(staged.engine, "legacy");
        let why = staged.fallback.unwrap();
        assert!(why.contains("first failed in") && why.contains("; second failed in"), "{why}");
    }
}

#[tokio::test]
async fn with_fail_the_request_fails_then_and_later() {
    let engines = [puppet::<0>("fail", ""), puppet::<1>("fail", "fails in assemble")];
    let stack = open(&engines, OnEngineError::Fail).unwrap();
    for _ in 0..2 {
        match staged(&stack, &view(), BUDGET).await {
            Err(SlotError::Engine { id, operation, .. }) => {
                assert_eq!((id.as_str(), operation), ("second", "assemble"));
            }
            other => panic!("{other:?}"),
        }
    }
    let engines = [puppet::<0>("fail", ""), puppet::<1>("fail", "fails in create")];
    assert!(matches!(open(&engines, OnEngineError::Fail), Err(SlotError::Open(_))));
}

#[tokio::test]
async fn what_the_caller_acts_on_is_no_failure() {
    let small = "finds the window small";
    let engines = [puppet::<0>("answer", small), puppet::<1>("answer", "")];
    let both = stack(&engines);
    match staged(&both, &view(), BUDGET).await {
        Err(SlotError::Answer { error }) => assert_eq!(error.kind, ErrorKind::WindowTooSmall),
        other => panic!("{other:?}"),
    }
    assert!(both.quarantine_record().is_none());
    // A stage below the last need not fit.
    let engines = [puppet::<0>("answer", "cannot fit"), puppet::<1>("answer", "")];
    let both = stack(&engines);
    let (staged, _) = shaped(&both, &view(), BUDGET).await;
    assert_eq!((staged.engine.as_str(), staged.fallback), ("second", None));
}

#[test]
fn a_row_is_checked_once_all_names_are_known() {
    let twice = [puppet::<0>("row", ""), puppet::<0>("row", "")];
    let error = open(&twice, OnEngineError::Fallback).expect_err("twice");
    assert!(matches!(error, SlotError::Chain(ChainSpecError::Duplicate { .. })), "{error}");
    let many: Vec<EngineSpec> = vec![puppet::<0>("row", ""); 5];
    let error = open(&many, OnEngineError::Fallback).expect_err("five");
    assert!(matches!(error, SlotError::Chain(ChainSpecError::TooMany { engines: 5 })), "{error}");
}
