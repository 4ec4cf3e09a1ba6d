//! Overflows in the wording of every provider: retried smaller, at most three times.

use ctxhost_agent::TurnError;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_dialects::FailureReason;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Fault, Model, OverflowForm};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{answers, words};

use super::{WINDOW_TOKENS, talker, workplace};

/// What a model holds that is smaller than its config says.
const TRUE_WINDOW_TOKENS: u64 = 24_000;

#[tokio::test]
async fn one_overflow_in_its_exact_form_costs_one_smaller_request() {
    for wire in Wire::ALL {
        for fault in [
            Fault::Overflow,
            Fault::OverflowMidStream { after_text: false },
            Fault::OverflowMidStream { after_text: true },
        ] {
            let server = talker(wire, Model::new(WINDOW_TOKENS));
            let place = workplace(wire, &server, "");
            let mut stage = Stage::open(&place).await;
            for n in 0..6 {
                stage.say(&format!("Tell me more, {n}")).await.unwrap();
            }
            let before = server.requests().len();
            server.fail_next(fault);
            let reply = stage.say("And the end?").await.unwrap();
            let case = format!("{wire:?} {fault:?}");
            assert!(reply.message.text().starts_with("Part"), "{case}");
            assert_eq!(stage.recoveries(), [FailureReason::ContextOverflow], "{case}");
            let requests = &server.requests()[before..];
            assert_eq!(requests.len(), 2, "{case}");
            assert!(requests[1].prompt_tokens < requests[0].prompt_tokens, "{case}");
            assert_eq!(server.broken(), [], "{case}");
            stage.close().await;
            let session = place.session();
            assert_eq!((words(&session).len(), answers(&session).len()), (7, 7), "{case}");
        }
    }
}

#[tokio::test]
async fn a_model_with_a_smaller_window_than_its_config_is_talked_to_all_the_same() {
    let forms = [
        OverflowForm::Plain,
        OverflowForm::Other,
        OverflowForm::TooLarge,
        OverflowForm::MidStream { after_text: false },
        OverflowForm::MidStream { after_text: true },
    ];
    for wire in Wire::ALL {
        for overflow in forms {
            let case = format!("{wire:?} {overflow:?}");
            let output = Model::new(WINDOW_TOKENS).max_output_tokens;
            let model =
                Model { overflow, max_output_tokens: output, ..Model::new(TRUE_WINDOW_TOKENS) };
            let server = talker(wire, model);
            let place = workplace(wire, &server, "");
            let mut stage = Stage::open(&place).await;
            for n in 0..11 {
                let before = server.requests().len();
                let outcome = stage.say(&format!("Tell me more, {n}")).await;
                outcome.unwrap_or_else(|error| panic!("{case} turn {n}: {error}"));
                let tries = server.requests().len() - before;
                assert!(tries <= 4, "{case}: {tries} requests for one answer");
            }
            assert_eq!(server.broken(), [], "{case}");
            stage.close().await;
            let session = place.session();
            assert_eq!((words(&session).len(), answers(&session).len()), (11, 11), "{case}");
        }
    }
}

#[tokio::test]
async fn an_overflow_for_ever_ends_after_three_recoveries() {
    for wire in Wire::ALL {
        for fault in [Fault::Overflow, Fault::OverflowMidStream { after_text: false }] {
            let case = format!("{wire:?} {fault:?}");
            let server = talker(wire, Model::new(WINDOW_TOKENS));
            let place = workplace(wire, &server, "");
            let mut stage = Stage::open(&place).await;
            for n in 0..4 {
                stage.say(&format!("Tell me more, {n}")).await.unwrap();
            }
            let before = server.requests().len();
            server.fail_always(Some(fault));
            let error = stage.say("And the end?").await.unwrap_err();
            let TurnError::CompactionFailure { attempts, .. } = &error else {
                panic!("{case}: {error}");
            };
            assert!(*attempts <= 3, "{case}");
            assert!(error.to_string().contains("start a new session"), "{case}: {error}");
            let sizes: Vec<u64> =
                server.requests()[before..].iter().map(|seen| seen.prompt_tokens).collect();
            assert!(sizes.len() <= 4, "{case}: {sizes:?}");
            assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "{case}: {sizes:?}");
            server.fail_always(None);
            stage.say("Are you back?").await.unwrap();
            assert_eq!(server.broken(), [], "{case}");
            stage.close().await;
            assert_eq!(words(&place.session()).len(), 6, "{case}");
        }
    }
}

#[tokio::test]
async fn overflows_for_ever_stay_within_the_hourly_budget() {
    let server = talker(Wire::Anthropic, Model::new(WINDOW_TOKENS));
    let config = ctxhost_tests::workplace::ConfigText::new();
    let place = config
        .provider("fake", Wire::Anthropic, &server.url(), WINDOW_TOKENS)
        .tables("[invariants]\ncompactions_per_hour = 5\nbreaker_failures = 100")
        .workplace();
    let mut stage = Stage::open(&place).await;
    for n in 0..6 {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
    }
    server.fail_always(Some(Fault::Overflow));
    for n in 0..10 {
        let error = stage.say(&format!("Again, {n}")).await.unwrap_err();
        assert!(
            matches!(error, TurnError::CompactionFailure { .. } | TurnError::Context(_)),
            "{error}"
        );
    }
    let compactions = stage.compactions();
    let is_applied = |it: &&CompactionOutcome| it.verdict == CompactionVerdict::Applied;
    let (applied, tried) = (compactions.iter().filter(is_applied).count(), compactions.len());
    // One that made room is no loop, however often; ten refused turns have little to give.
    assert!((1..=10).contains(&applied), "{applied} of {tried} compactions applied");
    assert!(tried - applied <= 5, "{tried} compactions in an hour, {applied} of them applied");
    assert_eq!(server.broken(), []);
}

#[tokio::test]
async fn an_overflow_never_goes_on_to_another_model() {
    let first = talker(Wire::OpenAiChat, Model::new(WINDOW_TOKENS));
    let second = talker(Wire::Gemini, Model::new(WINDOW_TOKENS));
    let config = ctxhost_tests::workplace::ConfigText::new();
    let place = config
        .provider("first", Wire::OpenAiChat, &first.url(), WINDOW_TOKENS)
        .provider("second", Wire::Gemini, &second.url(), WINDOW_TOKENS)
        .workplace();
    let mut stage = Stage::open(&place).await;
    stage.say("Tell me more").await.unwrap();
    first.fail_always(Some(Fault::Overflow));
    assert!(matches!(stage.say("More").await, Err(TurnError::CompactionFailure { .. })));
    assert!(second.requests().is_empty());
    assert!(
        first
            .requests()
            .iter()
            .skip(1)
            .all(|seen| seen.answered == Answered::Fault(Fault::Overflow))
    );
}
