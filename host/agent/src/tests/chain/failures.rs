//! Engines of a chain that fail are skipped and reported.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::testing::generate::Script;

use super::fixture::*;
use ctxhost_engine::{ChainSpecError, EngineSpec, OnEngineError, OnRefusal, SlotError};

fn view() -> Transcript {
    Script::new().user("task").assistant("yes").user("so?").finish().transcript()
}

#[tokio::test]
async fn a_failed_engine_is_skipped_and_named() {
    for does in ["fails in assemble", "fails in ingest", "fails in create", "invalid plan"] {
        let test = format!("skipped: {does}");
        let chain = open_chain(&[
            scripted_engine::<0>(&test, ""),
            scripted_engine::<1>(&test, does),
            scripted_engine::<2>(&test, ""),
        ]);
        assert_eq!(chain.configured_id(), "first+second+third");
        for _ in 0..2 {
            let (staged, _) = assemble(&chain, &view(), BUDGET).await;
            assert_eq!(staged.engine, "first+third", "{does}");
            assert_eq!(staged.version, "first 1.0.0 + third 1.0.0");
            let why = staged.fallback.unwrap();
            assert!(why.starts_with("second failed in "), "{does}: {why}");
        }
        assert_eq!(chain.quarantine_record().unwrap().id, "second");
        assert_eq!(chain.serving_info().id, "first+third");
    }
}

#[tokio::test]
async fn the_last_engine_is_checked_against_the_whole_session() {
    let chain = open_chain(&[
        scripted_engine::<0>("last", "shortens"),
        scripted_engine::<1>("last", "invalid plan"),
    ]);
    let (staged, _) = assemble(&chain, &view(), BUDGET).await;
    assert_eq!(staged.engine, "first");
    assert!(staged.fallback.unwrap().starts_with("second failed in assemble: operation 0"));
}

#[tokio::test]
async fn a_rejected_plan_can_be_reported_without_quarantine() {
    let test = "rejected";
    let engines = [scripted_engine::<0>(test, "invalid plan"), scripted_engine::<1>(test, "")];
    let chain = open(&engines, OnEngineError::Fail).unwrap();
    for _ in 0..2 {
        match judged(&chain, &view(), BUDGET, OnRefusal::Report).await {
            Err(SlotError::Refused { id, reason }) => {
                assert_eq!(id, "first");
                assert!(reason.starts_with("operation 0"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert!(chain.quarantine_record().is_none());
    }
}

#[tokio::test]
async fn a_released_engine_serves_again() {
    let chain = open_chain(&[
        scripted_engine::<0>("lift", ""),
        scripted_engine::<1>("lift", "fails in assemble"),
    ]);
    assemble(&chain, &view(), BUDGET).await;
    let serving = chain.serving();
    assert_eq!(chain.release_quarantine().unwrap().id, "second");
    assert_eq!(chain.serving_info().id, "first+second");
    assert_ne!(chain.serving(), serving, "sessions are bootstrapped again");
}

#[tokio::test]
async fn the_bundled_engine_serves_if_all_fail() {
    let does = "fails in assemble";
    let chain =
        open_chain(&[scripted_engine::<0>("none", does), scripted_engine::<1>("none", does)]);
    for _ in 0..2 {
        let (staged, _) = assemble(&chain, &view(), BUDGET).await;
        assert_eq!(staged.engine, "legacy");
        let why = staged.fallback.unwrap();
        assert!(why.contains("first failed in") && why.contains("; second failed in"), "{why}");
    }
}

#[tokio::test]
async fn with_fail_each_request_fails() {
    let engines =
        [scripted_engine::<0>("fail", ""), scripted_engine::<1>("fail", "fails in assemble")];
    let chain = open(&engines, OnEngineError::Fail).unwrap();
    for _ in 0..2 {
        match staged(&chain, &view(), BUDGET).await {
            Err(SlotError::Engine { id, operation, .. }) => {
                assert_eq!((id.as_str(), operation), ("second", "assemble"));
            }
            other => panic!("{other:?}"),
        }
    }
    let engines =
        [scripted_engine::<0>("fail", ""), scripted_engine::<1>("fail", "fails in create")];
    assert!(matches!(open(&engines, OnEngineError::Fail), Err(SlotError::Open(_))));
}

#[tokio::test]
async fn errors_for_the_caller_are_not_failures() {
    for does in ["finds the window small", "cannot fit", "cancels"] {
        // Another engine serves such a request, at last the bundled one.
        let engines = [scripted_engine::<0>("answer", does), scripted_engine::<1>("answer", "")];
        let both = open_chain(&engines);
        let (answer, _) = assemble(&both, &view(), BUDGET).await;
        assert_eq!((answer.engine.as_str(), answer.fallback), ("second", None));
        let one = open_chain(&engines[..1]);
        let (answer, _) = assemble(&one, &view(), BUDGET).await;
        assert_eq!(answer.engine, "legacy");
        let why = answer.fallback.unwrap();
        assert!(why.starts_with("first declined to assemble: "), "{why}");
        assert!(both.quarantine_record().is_none() && one.quarantine_record().is_none());
        let failing = open(&engines[..1], OnEngineError::Fail).unwrap();
        let error = staged(&failing, &view(), BUDGET).await.unwrap_err();
        assert!(matches!(error, SlotError::Answer { .. }), "{error}");
    }
}

#[test]
fn a_chain_is_validated_when_it_is_opened() {
    let twice = [scripted_engine::<0>("chain", ""), scripted_engine::<0>("chain", "")];
    let error = open(&twice, OnEngineError::Fallback).expect_err("twice");
    assert!(matches!(error, SlotError::Chain(ChainSpecError::Duplicate { .. })), "{error}");
    let many: Vec<EngineSpec> = vec![scripted_engine::<0>("chain", ""); 5];
    let error = open(&many, OnEngineError::Fallback).expect_err("five");
    assert!(matches!(error, SlotError::Chain(ChainSpecError::TooMany { engines: 5 })), "{error}");
}
