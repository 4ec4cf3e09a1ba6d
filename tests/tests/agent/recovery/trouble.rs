//! Provider failures: transient ones are retried, others end in a clear message.

use std::time::{Duration, Instant};

use ctxhost_dialects::FailureReason;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Model};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{answers, words};

use super::{WINDOW_TOKENS, talker, workplace};

/// Long enough for a busy machine, short enough to wait for.
const SHORT_PATIENCE: &str =
    "retries = 1\nconnect_timeout_ms = 2000\nfirst_byte_timeout_ms = 1500\nidle_timeout_ms = 1500";

/// What goes away when the same is asked again.
const PASSING: [Fault; 10] = [
    Fault::RateLimited { retry_after_s: 0 },
    Fault::Overloaded,
    Fault::ServerError,
    Fault::EmptyBody,
    Fault::NothingSaid,
    Fault::CutStream,
    Fault::EndEarly,
    Fault::WrongJson,
    Fault::HtmlPage,
    Fault::Reset,
];

#[tokio::test]
async fn what_passes_costs_no_word() {
    for wire in Wire::ALL {
        let server = talker(wire, Model::new(WINDOW_TOKENS)).seed(7);
        let place = workplace(wire, &server, SHORT_PATIENCE);
        let mut stage = Stage::open(&place).await;
        for fault in PASSING {
            server.fail_next(fault);
            let before = server.requests().len();
            let reply = stage.say(&format!("Something about {fault:?}")).await;
            let reply = reply.unwrap_or_else(|error| panic!("{wire:?} {fault:?}: {error}"));
            assert!(reply.message.text().starts_with("Part"), "{wire:?} {fault:?}");
            let requests = server.requests().len() - before;
            assert!(requests <= 3, "{wire:?} {fault:?}: {requests} requests");
        }
        assert_eq!(server.broken(), [], "{wire:?}");
        stage.close().await;
        let session = place.session();
        assert_eq!(words(&session).len(), PASSING.len(), "{wire:?}");
        assert_eq!(answers(&session).len(), PASSING.len(), "{wire:?}");
        assert!(answers(&session).iter().all(|answer| answer.starts_with("Part")), "{wire:?}");
    }
}

#[tokio::test]
async fn a_provider_is_given_the_time_that_it_asks_for() {
    let server = talker(Wire::OpenAiChat, Model::new(WINDOW_TOKENS));
    let place = workplace(Wire::OpenAiChat, &server, "");
    let mut stage = Stage::open(&place).await;
    server.fail_next(Fault::RateLimited { retry_after_s: 1 });
    let begun = Instant::now();
    stage.say("Hello").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn what_does_not_pass_ends_in_a_clear_message() {
    let cases: [(Fault, &str, &str); 7] = [
        (Fault::RateLimited { retry_after_s: 0 }, "rate limit", "wait a minute"),
        (Fault::Overloaded, "overloaded", "try again later"),
        (Fault::ServerError, "the provider failed", "try again later"),
        (Fault::NothingSaid, "an empty answer", "check the dialect"),
        (Fault::WrongJson, "", "check the dialect"),
        (Fault::Hang, "no answer in time", "try again later"),
        (Fault::HangMidStream, "no answer in time", "try again later"),
    ];
    for wire in Wire::ALL {
        let server = talker(wire, Model::new(WINDOW_TOKENS));
        let place = workplace(wire, &server, SHORT_PATIENCE);
        let mut stage = Stage::open(&place).await;
        stage.say("Hello").await.unwrap();
        for (fault, reason, advice) in cases {
            server.fail_always(Some(fault));
            let before = server.requests().len();
            let error = stage.say(&format!("{fault:?}")).await.unwrap_err().to_string();
            assert!(
                error.contains(reason) && error.contains(advice),
                "{wire:?} {fault:?}: {error}"
            );
            let requests = server.requests().len() - before;
            assert!(requests <= 4, "{wire:?} {fault:?}: {requests} requests");
        }
        server.fail_always(None);
        stage.say("Are you back?").await.unwrap();
        assert_eq!(stage.compactions().len(), 0, "{wire:?}: no compaction mends a provider");
        assert_eq!(server.broken(), [], "{wire:?}");
        stage.close().await;
        assert_eq!(words(&place.session()).len(), cases.len() + 2, "{wire:?}");
    }
}

#[tokio::test]
async fn an_upstream_that_is_down_for_a_while_costs_no_compaction_and_comes_back() {
    let server = talker(Wire::Anthropic, Model::new(WINDOW_TOKENS));
    let place = workplace(Wire::Anthropic, &server, "retries = 2");
    let mut stage = Stage::open(&place).await;
    for n in 0..5 {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
    }
    server.go_down();
    for n in 0..5 {
        let error = stage.say(&format!("Are you there, {n}?")).await.unwrap_err().to_string();
        assert!(error.contains("the connection failed"), "{error}");
        assert!(error.contains(server.url().trim_start_matches("http://")), "{error}");
    }
    server.come_up();
    stage.say("Welcome back").await.unwrap();
    assert_eq!(stage.compactions().len(), 0);
    assert_eq!(server.broken(), []);
    stage.close().await;
    assert_eq!(words(&place.session()).len(), 11);
}

#[tokio::test]
async fn a_timeout_of_a_nearly_full_window_is_answered_by_a_compaction() {
    let server = talker(Wire::OpenAiChat, Model::new(WINDOW_TOKENS));
    let config = ctxhost_tests::workplace::ConfigText::new();
    let place = config
        .provider_with("fake", Wire::OpenAiChat, &server.url(), WINDOW_TOKENS, SHORT_PATIENCE)
        .tables("[compaction]\ntimeout_share = 0.2")
        .workplace();
    let mut stage = Stage::open(&place).await;
    for n in 0..8 {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
    }
    server.fail_next(Fault::Hang);
    stage.say("And the end?").await.unwrap();
    assert_eq!(stage.recoveries(), [FailureReason::Timeout]);
    assert!(stage.compactions().iter().any(|outcome| outcome.before_tokens > outcome.after_tokens));
    let sizes: Vec<u64> = server.requests().iter().map(|seen| seen.prompt_tokens).collect();
    assert!(sizes[9] < sizes[8], "{sizes:?}");
    assert_eq!(server.broken(), []);
}
