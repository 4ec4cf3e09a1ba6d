//! Malformed histories and output limits: retried once without thinking, or with a shorter answer.

use ctxhost_dialects::FailureReason;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Step, Steps};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::ConfigText;

use super::{WINDOW_TOKENS, talker, workplace};

#[tokio::test]
async fn a_longer_answer_than_the_model_gives_is_not_asked_for_again() {
    // Ollama refuses no length: it cuts the answer.
    for wire in Wire::ALL.into_iter().filter(|wire| *wire != Wire::Ollama) {
        let model = Model { max_output_tokens: 1_000, ..Model::new(WINDOW_TOKENS) };
        let server = talker(wire, model);
        let place = workplace(wire, &server, "");
        let mut stage = Stage::open(&place).await;
        stage.say("Hello").await.unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        // Gemini names the first length that it does not give.
        let expected = if wire == Wire::Gemini { 2 } else { 1 };
        assert_eq!(stage.recoveries(), vec![FailureReason::OutputLimit; expected], "{wire:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), expected + 1, "{wire:?}");
        assert_eq!(requests[0].answered, Answered::OutputLimit, "{wire:?}");
        assert!(requests[expected].output_tokens <= 1_000, "{wire:?}");
        assert_eq!(stage.compactions().len(), 0, "{wire:?}");
    }
}

/// A session that another server signed, so that this one refuses its thinking.
#[tokio::test]
async fn thinking_that_is_refused_is_left_out() {
    let think = || vec![Step::think("Let me see."), Step::say("It is done.")];
    let server = |n: u64| {
        let model = Model { binds_thinking: true, ..Model::new(WINDOW_TOKENS) };
        ScriptedServer::start(Wire::Anthropic, model)
            .seed(n)
            .script(Steps::new((0..9).map(|_| think())))
    };
    let first = server(1);
    let config = |url: &str| {
        let text = ConfigText::new().provider("fake", Wire::Anthropic, url, WINDOW_TOKENS);
        text.agent("thinking = \"medium\"")
    };
    let place = config(&first.url()).workplace();
    let mut stage = Stage::open(&place).await;
    stage.say("Begin").await.unwrap();
    stage.say("Go on").await.unwrap();
    assert_eq!(first.broken(), []);
    stage.close().await;

    let second = server(2);
    let moved = config(&second.url()).workplace();
    std::fs::copy(place.session_path(), moved.session_path()).unwrap();
    let mut stage = Stage::open(&moved).await;
    stage.say("Go on here").await.unwrap();
    let answered: Vec<Answered> =
        second.requests().iter().map(|seen| seen.answered.clone()).collect();
    assert!(answered.len() <= 2, "{answered:?}");
    if answered.len() == 2 {
        assert_eq!(answered[0], Answered::Malformed);
        assert_eq!(stage.recoveries(), [FailureReason::MalformedHistory]);
        assert!(!second.requests()[1].body.to_string().contains("Let me see."));
    }
    assert_eq!(stage.compactions().len(), 0);
}
