//! Refusals that no retry repairs: failover to another model.

use ctxhost_agent::TurnError;
use ctxhost_agent::event::EventKind;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Model, ScriptedServer, Step, Steps};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, Workplace, answers, words};
use serde_json::json;

use super::{WINDOW_TOKENS, talker};

fn two(first: &ScriptedServer, wire: Wire, second: &ScriptedServer, other: Wire) -> Workplace {
    ConfigText::new()
        .provider_with("first", wire, &first.url(), WINDOW_TOKENS, "retries = 1")
        .provider_with("second", other, &second.url(), WINDOW_TOKENS, "retries = 1")
        .workplace()
}

/// Each dialect with the one after it.
fn pairs() -> impl Iterator<Item = (Wire, Wire)> {
    let others = Wire::ALL.into_iter().cycle().skip(1);
    Wire::ALL.into_iter().zip(others)
}

#[tokio::test]
async fn the_second_provider_answers_in_the_middle_of_a_turn_with_tools() {
    for (wire, other) in pairs() {
        for fault in [Fault::Unauthorized, Fault::NoCredit, Fault::NoModel, Fault::ServerError] {
            let case = format!("{wire:?} -> {other:?} {fault:?}");
            let read = Step::call("read_file", json!({"path": "notes.txt"}));
            let first = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS))
                .script(Steps::new([vec![Step::think("Hm."), Step::say("I look."), read]]));
            let second = ScriptedServer::start(other, Model::new(WINDOW_TOKENS))
                .script(Steps::new([vec![Step::say("It is 4711.")]]));
            let place = two(&first, wire, &second, other);
            let mut stage = Stage::open(&place).await;
            first.fail_next(Fault::SlowFirstByte { delay_ms: 0 });
            for _ in 0..3 {
                first.fail_next(fault);
            }
            let reply = stage.say("Which number is it?").await;
            let reply = reply.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(reply.message.text(), "It is 4711.", "{case}");
            let changed = stage.last_turn().iter().any(|what| {
                matches!(what, EventKind::ModelChanged { model, .. } if model.starts_with("second/"))
            });
            assert!(changed, "{case}: nobody was told");
            assert_eq!((first.broken(), second.broken()), (vec![], vec![]), "{case}");
            let reported = second.requests()[0].body.to_string();
            assert!(reported.contains("The number is 4711."), "{case}: {reported}");
            stage.close().await;
            assert_eq!(answers(&place.session()), ["I look.", "It is 4711."], "{case}");
        }
    }
}

#[tokio::test]
async fn when_no_model_answers_each_is_named_with_what_to_do() {
    let first = talker(Wire::OpenAiChat, Model::new(WINDOW_TOKENS));
    let second = talker(Wire::Anthropic, Model::new(WINDOW_TOKENS));
    first.fail_always(Some(Fault::Unauthorized));
    second.fail_always(Some(Fault::NoCredit));
    let place = two(&first, Wire::OpenAiChat, &second, Wire::Anthropic);
    let mut stage = Stage::open(&place).await;
    let error = stage.say("Hello").await.unwrap_err();
    assert!(matches!(error, TurnError::Models(_)));
    let said = error.to_string();
    for part in ["first/gpt-4.1: the key is not accepted", "second/claude-sonnet-4-5: no credit"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
    stage.close().await;
    assert_eq!(words(&place.session()), ["Hello"]);
}

#[tokio::test]
async fn a_model_that_rests_is_passed_over_by_the_next_turn() {
    let first = talker(Wire::Responses, Model::new(WINDOW_TOKENS));
    let second = talker(Wire::Ollama, Model::new(WINDOW_TOKENS));
    let place = two(&first, Wire::Responses, &second, Wire::Ollama);
    let mut stage = Stage::open(&place).await;
    first.fail_next(Fault::NoCredit);
    stage.say("Hello").await.unwrap();
    stage.say("And again").await.unwrap();
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
}
