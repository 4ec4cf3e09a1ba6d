//! The chain by reason, and its invariants.

use proptest::prelude::*;

use super::*;

const REASONS: [FailureReason; 21] = [
    FailureReason::ContextOverflow,
    FailureReason::MalformedHistory,
    FailureReason::OutputLimit,
    FailureReason::WindowTooSmall,
    FailureReason::Billing,
    FailureReason::Auth,
    FailureReason::AuthPermanent,
    FailureReason::RateLimit,
    FailureReason::Overloaded,
    FailureReason::ServerError,
    FailureReason::Timeout,
    FailureReason::Connection,
    FailureReason::TlsCertificate,
    FailureReason::ModelNotFound,
    FailureReason::SessionExpired,
    FailureReason::Format,
    FailureReason::EmptyResponse,
    FailureReason::StreamCut,
    FailureReason::InvalidResponse,
    FailureReason::Cancelled,
    FailureReason::Unclassified,
];

fn model(id: &str) -> ModelName {
    ModelName::new("p", id)
}

fn chain(ids: &[&str]) -> Failover {
    Failover::new(FailoverSettings::default(), ids.iter().map(|id| model(id)).collect())
}

fn error(reason: FailureReason) -> ProviderError {
    ProviderError::new(reason, "p", "m", "the reason".to_owned())
}

#[test]
fn overflow_and_cancellation_never_advance() {
    for (reason, stop) in [
        (FailureReason::ContextOverflow, FailoverStop::ContextOverflow),
        (FailureReason::Cancelled, FailoverStop::Cancelled),
    ] {
        let mut failover = chain(&["a", "b"]);
        let mut walk = failover.start_turn(0).unwrap();
        assert_eq!(
            failover.record_failure(&mut walk, &error(reason), 0),
            FailoverDecision::Stop(stop)
        );
        assert_eq!(*walk.model(), model("a"));
        assert_eq!(
            *failover.start_turn(0).unwrap().model(),
            model("a"),
            "and the model has no cooldown"
        );
    }
}

#[test]
fn permanent_failures_advance_to_the_next_model() {
    for why in [
        FailureReason::WindowTooSmall,
        FailureReason::Auth,
        FailureReason::AuthPermanent,
        FailureReason::Billing,
        FailureReason::Overloaded,
        FailureReason::RateLimit,
        FailureReason::ModelNotFound,
        FailureReason::ServerError,
        FailureReason::Timeout,
        FailureReason::Connection,
        FailureReason::Format,
    ] {
        let mut failover = chain(&["a", "b"]);
        let mut walk = failover.start_turn(0).unwrap();
        let next = FailoverDecision::Next { model: model("b"), reason: why };
        assert_eq!(failover.record_failure(&mut walk, &error(why), 0), next, "{why:?}");
    }
}

#[test]
fn temporary_failures_are_retried_once_before_the_next_model() {
    for why in [
        FailureReason::EmptyResponse,
        FailureReason::StreamCut,
        FailureReason::InvalidResponse,
        FailureReason::OutputLimit,
    ] {
        let mut failover = chain(&["a", "b"]);
        let mut walk = failover.start_turn(0).unwrap();
        assert_eq!(failover.record_failure(&mut walk, &error(why), 0), FailoverDecision::Retry);
        let next = FailoverDecision::Next { model: model("b"), reason: why };
        assert_eq!(failover.record_failure(&mut walk, &error(why), 0), next);
        assert_eq!(
            failover.record_failure(&mut walk, &error(why), 0),
            FailoverDecision::Retry,
            "b has its own"
        );
        assert_eq!(
            *failover.start_turn(0).unwrap().model(),
            model("a"),
            "no cooldown for temporary failures"
        );
    }
}

#[test]
fn a_model_in_cooldown_is_skipped_until_it_ends() {
    let mut failover = chain(&["a", "b"]);
    let mut walk = failover.start_turn(0).unwrap();
    failover.record_failure(&mut walk, &error(FailureReason::RateLimit), 1_000);
    let first_at =
        |failover: &Failover, now_ms| failover.start_turn(now_ms).unwrap().model().clone();
    assert_eq!(first_at(&failover, 60_999), model("b"));
    assert_eq!(first_at(&failover, 61_000), model("a"));

    let asked = ProviderError { retry_after_ms: Some(120_000), ..error(FailureReason::RateLimit) };
    let mut walk = failover.start_turn(100_000).unwrap();
    failover.record_failure(&mut walk, &asked, 100_000);
    assert_eq!(first_at(&failover, 219_999), model("b"));
    failover.record_success(&model("a"));
    assert_eq!(first_at(&failover, 100_001), model("a"), "an answer ends the cooldown");
}

#[test]
fn with_all_models_in_cooldown_the_shortest_one_is_used() {
    let mut failover = chain(&["a", "b"]);
    let mut walk = failover.start_turn(0).unwrap();
    failover.record_failure(&mut walk, &error(FailureReason::Auth), 0);
    failover.record_failure(&mut walk, &error(FailureReason::Overloaded), 0);
    assert_eq!(*failover.start_turn(1).unwrap().model(), model("b"));
}

#[test]
fn the_chain_is_cyclic() {
    let mut failover = chain(&["a", "b"]);
    let mut walk = failover.start_turn(0).unwrap();
    failover.record_failure(&mut walk, &error(FailureReason::Overloaded), 0);
    // The turn starts with b, and the cooldown of a has ended when b fails.
    let mut walk = failover.start_turn(1).unwrap();
    assert_eq!(*walk.model(), model("b"));
    let next = FailoverDecision::Next { model: model("a"), reason: FailureReason::Timeout };
    assert_eq!(failover.record_failure(&mut walk, &error(FailureReason::Timeout), 40_000), next);
}

#[test]
fn the_final_error_names_every_model_and_a_remedy() {
    let mut failover = chain(&["a", "b", "c"]);
    let mut first = failover.start_turn(0).unwrap();
    failover.record_failure(&mut first, &error(FailureReason::Billing), 0);
    let mut walk = failover.start_turn(0).unwrap();
    failover.record_failure(&mut walk, &error(FailureReason::Auth), 0);
    let FailoverDecision::Stop(FailoverStop::ChainExhausted(all)) =
        failover.record_failure(&mut walk, &error(FailureReason::Overloaded), 0)
    else {
        panic!("c was the last")
    };
    assert_eq!(
        all.to_string(),
        "no answer from any of 3 models:\n  \
         p/b: the key is not accepted (the reason); check the key and the variable or command that it comes from\n  \
         p/c: overloaded (the reason); try again later, or add a second provider to the chain\n  \
         p/a: no credit, in cooldown for 600 s; add credit with the provider"
    );
}

#[test]
fn empty_chains_and_duplicates() {
    assert!(chain(&[]).start_turn(0).is_none());
    let mut failover = chain(&["a", "a"]);
    let mut walk = failover.start_turn(0).unwrap();
    let ended = failover.record_failure(&mut walk, &error(FailureReason::Format), 0);
    assert!(
        matches!(ended, FailoverDecision::Stop(FailoverStop::ChainExhausted(all)) if all.attempts.len() == 1)
    );
}

#[test]
fn settings_are_strict() {
    let parse = toml::from_str::<FailoverSettings>;
    assert_eq!(parse("").unwrap(), FailoverSettings::default());
    assert!(parse("throttled_rest = 1").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A turn ends, tries no model twice, and stays with its model on an overflow.
    #[test]
    fn every_turn_ends_and_tries_no_model_twice(
        models in 1_usize..6,
        retries in 0_u32..4,
        turns in proptest::collection::vec(
            proptest::collection::vec((proptest::sample::select(&REASONS[..]), 0_u64..100_000), 1..40),
            1..4,
        ),
    ) {
        let ids: Vec<String> = (0..models).map(|n| n.to_string()).collect();
        let settings = FailoverSettings { same_model_retries: retries, ..Default::default() };
        let mut failover = Failover::new(settings, ids.iter().map(|id| model(id)).collect());
        let mut now_ms = 0;
        for reasons in turns {
            let mut walk = failover.start_turn(now_ms).unwrap();
            let mut asked = 0;
            for (reason, passed_ms) in reasons.iter().cycle() {
                now_ms += passed_ms;
                asked += 1;
                let before = walk.model().clone();
                match failover.record_failure(&mut walk, &error(*reason), now_ms) {
                    FailoverDecision::Retry => prop_assert_eq!(walk.model(), &before),
                    FailoverDecision::Next { model, reason: why } => {
                        prop_assert_eq!(why, *reason);
                        prop_assert_ne!(&model, &before);
                        prop_assert!(walk.attempts().iter().all(|a| a.model != model));
                    }
                    FailoverDecision::Stop(_) => break,
                }
                prop_assert!(!matches!(reason, FailureReason::ContextOverflow | FailureReason::Cancelled));
            }
            prop_assert!(asked <= models * (1 + retries as usize));
        }
    }
}
