//! The client against a loopback server: retries, timeouts, errors.

use std::sync::Mutex as StdMutex;
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::time::{Duration, Instant};

use axum::response::Response;
use serde_json::json;

use super::*;
use ctxhost_dialects::DialectName;
use ctxhost_dialects::dialect::Decoder;
use ctxhost_dialects::failure::FailureReason;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_dialects::openai_chat::{Compat, OpenAiChat};
use ctxhost_dialects::openai_responses::OpenAiResponses;

mod counting;
mod keys;
mod messages;
mod server;
mod surrogates;
mod windows;

use server::{SentRequest, Server, Step, end, event, plain, stream_of, text, whole};

const KEY: &str = "sk-loopback-4711";

/// Quick settings for a server.
fn settings(base_url: &str) -> ProviderSettings {
    ProviderSettings {
        base_url: Some(base_url.to_owned()),
        retries: 2,
        retry_pause_ms: 1,
        retry_pause_max_ms: 2,
        retry_after_max_ms: 2_000,
        first_byte_timeout_ms: 5_000,
        idle_timeout_ms: 5_000,
        ..ProviderSettings::new(DialectName::OpenAiCompletions)
    }
}

fn client_with(settings: &ProviderSettings, key: ApiKey) -> HttpClient {
    let dialect = Box::new(OpenAiChat::new(Compat::default()));
    HttpClient::new("here", dialect, key, settings).unwrap()
}

fn client(server: &Server) -> HttpClient {
    client_with(&settings(&server.base_url), ApiKey::from_secret(KEY.into()))
}

fn request() -> ModelRequest {
    let messages = vec![ChatMessage::from_user_text("hello")];
    ModelRequest { model: "m".into(), messages, max_output_tokens: 100, ..Default::default() }
}

/// The result of a request, and the text streamed before it.
struct Outcome {
    answer: Result<AssistantMessage, ProviderError>,
    received: String,
}

impl Outcome {
    fn reason(&self) -> FailureReason {
        self.error().reason
    }

    fn error(&self) -> &ProviderError {
        self.answer.as_ref().expect_err("there is an answer")
    }
}

async fn ask(client: &HttpClient) -> Outcome {
    let mut received = String::new();
    let mut receive = |part: StreamPart<'_>| {
        if let StreamPart::Text(text) = part {
            received.push_str(text);
        }
    };
    let answer = client.generate(&request(), &mut receive).await;
    Outcome { answer, received }
}

/// A server that gives the same answer always.
async fn always(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Server {
    Server::start(move |_, _: &SentRequest| answer()).await
}

#[tokio::test]
async fn an_answer_is_streamed_and_stored() {
    let steps = || [vec![text("grüß "), text("dich 漢")], end()].concat();
    let server = always(move || stream_of(steps())).await;
    let outcome = ask(&client(&server)).await;
    let answer = outcome.answer.unwrap();
    assert_eq!(
        (outcome.received.as_str(), answer.text().as_str()),
        ("grüß dich 漢", "grüß dich 漢")
    );
    let usage = TokenUsage { input: 20, output: 2, cache_read: 10, ..TokenUsage::default() };
    let expected = AssistantMessage {
        content: answer.content.clone(),
        api: "openai-completions".into(),
        provider: "here".into(),
        model: "m".into(),
        response_model: "m-2026".into(),
        response_id: "cc-1".into(),
        usage: usage.with_total(),
        stop_reason: StopReason::Stop,
        raw_stop_reason: "stop".into(),
        timestamp: answer.timestamp,
        ..AssistantMessage::default()
    };
    assert_eq!(answer, expected);
    assert!(answer.timestamp > 1_600_000_000_000);
    let [sent] = server.requests().try_into().unwrap();
    assert_eq!(sent.uri, "/v1/chat/completions");
    assert_eq!(sent.header("authorization"), format!("Bearer {KEY}"));
    assert_eq!(sent.header("content-type"), "application/json");
    assert_eq!(sent.body["messages"], json!([{"role": "user", "content": "hello"}]));
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let answer = json!({"id": "x", "choices": [{"finish_reason": "stop",
        "message": {"role": "assistant", "content": "all at once"}}]});
    let server = always(move || plain(200, &[], answer.to_string())).await;
    assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "all at once");
}

#[tokio::test]
async fn temporary_errors_are_retried_after_the_requested_wait() {
    for (header, value, pause_ms) in [("retry-after-ms", "120", 120), ("retry-after", "0.2", 200)] {
        for status in [429, 500, 503, 529] {
            let server = Server::start(move |turn, _| match turn {
                0 => plain(status, &[(header, value)], r#"{"error":{"message":"busy"}}"#),
                _ => whole("now"),
            })
            .await;
            let start = Instant::now();
            assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "now", "{status}");
            assert!(start.elapsed() >= Duration::from_millis(pause_ms), "{header} {status}");
            assert_eq!(server.requests().len(), 2, "{status}");
        }
    }
}

#[tokio::test]
async fn a_pause_that_is_too_long_ends_the_request() {
    let headers = [("retry-after", "3600")];
    let server = always(move || plain(429, &headers, r#"{"error":{"message":"later"}}"#)).await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(outcome.reason(), FailureReason::RateLimit);
    assert_eq!(outcome.error().retry_after_ms, Some(3_600_000));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn retries_are_limited_and_the_last_error_counts() {
    let server = Server::start(|turn, _| match turn {
        0 => plain(529, &[], ""),
        1 => plain(500, &[], "oops"),
        _ => plain(503, &[], r#"{"error":{"message":"still busy","code":"busy"}}"#),
    })
    .await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(server.requests().len(), 3);
    assert_eq!(outcome.reason(), FailureReason::Overloaded);
    let error = outcome.error();
    let facts = (error.status, error.code.as_str(), error.message.as_str(), error.has_started);
    assert_eq!(facts, (Some(503), "busy", "still busy", false));
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    for status in [400, 401, 402, 403, 404, 413, 302] {
        let server =
            always(move || plain(status, &[("location", "http://elsewhere/")], "no")).await;
        let outcome = ask(&client(&server)).await;
        assert_eq!(outcome.error().status, Some(status));
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_started_answer_is_never_retried() {
    let breaks = vec![text("half an "), Step::Breaks];
    let ends = vec![text("half an ")];
    let fails = vec![
        text("half an "),
        event(json!({"error": {"message": "full", "code": "overloaded_error"}})),
    ];
    let stalls = vec![text("half an "), Step::Waits(3_000)];
    let cases = [
        (breaks, FailureReason::StreamCut),
        (ends, FailureReason::StreamCut),
        (fails, FailureReason::Overloaded),
        (stalls, FailureReason::Timeout),
    ];
    for (steps, reason) in cases {
        let server = always(move || stream_of(steps.clone())).await;
        let settings = ProviderSettings { idle_timeout_ms: 100, ..settings(&server.base_url) };
        let outcome = ask(&client_with(&settings, ApiKey::none())).await;
        assert_eq!(outcome.reason(), reason);
        assert!(outcome.error().has_started, "{reason:?}");
        assert_eq!(outcome.received, "half an ");
        assert_eq!(server.requests().len(), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn a_stream_cut_before_its_first_part_is_retried() {
    let role = || event(json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}));
    let server = Server::start(move |turn, _| match turn {
        0 => stream_of(vec![role(), Step::Breaks]),
        _ => whole("again"),
    })
    .await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(outcome.answer.unwrap().text(), "again");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_that_is_whole_needs_no_end_of_its_connection() {
    let done = || [vec![text("whole")], end(), vec![Step::Waits(60_000)]].concat();
    let server = always(move || stream_of(done())).await;
    assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "whole");
    let stop =
        || event(json!({"choices": [{"delta": {"content": "whole"}, "finish_reason": "stop"}]}));
    for last in [Step::Waits(60_000), Step::Breaks] {
        let server = always(move || stream_of(vec![stop(), last.clone()])).await;
        let settings = ProviderSettings { idle_timeout_ms: 100, ..settings(&server.base_url) };
        let outcome = ask(&client_with(&settings, ApiKey::none())).await;
        assert_eq!(outcome.answer.unwrap().text(), "whole");
    }
}

#[tokio::test]
async fn an_empty_answer_is_an_error_and_counts_are_kept() {
    let bodies = [
        String::new(),
        "\n\n".to_owned(),
        "data: [DONE]\n\n".to_owned(),
        "data: {\"choices\":[{\"delta\":{\"content\":\" \"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7}}\n\n".to_owned(),
    ];
    for (at, body) in bodies.into_iter().enumerate() {
        let server = always(move || plain(200, &[], body.clone())).await;
        let outcome = ask(&client(&server)).await;
        assert_eq!(outcome.reason(), FailureReason::EmptyResponse, "{at}");
        assert_eq!(outcome.error().observed_tokens, (at == 3).then_some(7));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_cut_at_its_length_may_be_empty_because_its_usage_tells_why() {
    let last = json!({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": {"prompt_tokens": 99}});
    let server = always(move || stream_of(vec![event(last.clone())])).await;
    let answer = ask(&client(&server)).await.answer.unwrap();
    assert_eq!((answer.stop_reason, answer.usage.prompt_tokens()), (StopReason::Length, 99));
}

#[tokio::test]
async fn phrases_of_the_config_classify_refusals() {
    let message = "the scroll is longer than the shelf";
    let server =
        always(move || plain(400, &[], json!({"error": {"message": message}}).to_string())).await;
    let reason = |settings: ProviderSettings| async move {
        ask(&client_with(&settings, ApiKey::from_secret(KEY.into()))).await.reason()
    };
    let usual = settings(&server.base_url);
    assert_eq!(reason(usual.clone()).await, FailureReason::Format);
    let overflow_phrases = vec!["longer than the [a-z]+".to_owned()];
    let own = ProviderSettings { overflow_phrases, ..usual };
    assert_eq!(reason(own.clone()).await, FailureReason::ContextOverflow);
    let never_overflow_phrases = vec!["the SHELF".to_owned()];
    assert_eq!(
        reason(ProviderSettings { never_overflow_phrases, ..own }).await,
        FailureReason::Format
    );
}

#[test]
fn an_invalid_phrase_is_reported() {
    let bad =
        ProviderSettings { overflow_phrases: vec!["(".to_owned()], ..settings("http://x/v1") };
    let dialect = Box::new(OpenAiChat::new(Compat::default()));
    let error = HttpClient::new("here", dialect, ApiKey::none(), &bad).unwrap_err();
    assert!(matches!(error, ConnectError::Setting { setting: "overflow_phrases", .. }), "{error}");
}

#[tokio::test]
async fn an_invalid_response_is_quoted_in_short() {
    let page = format!("<html><body>Sign in {}</body></html>", "x".repeat(5_000));
    let bodies = [
        page,
        "upstream is gone".to_owned(),
        "data: {\"cho\n\n".to_owned(),
        "{\"hello\":".to_owned(),
    ];
    for body in bodies {
        let shown = body.trim_start_matches("data: ").chars().take(8).collect::<String>();
        let server = always(move || plain(200, &[], body.clone())).await;
        let outcome = ask(&client(&server)).await;
        assert_eq!(outcome.reason(), FailureReason::InvalidResponse, "{shown}");
        let message = &outcome.error().message;
        assert!(message.contains(shown.trim()) && message.len() < 500, "{message}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_error_with_status_200_is_an_error() {
    let body = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let server = always(move || plain(200, &[], body)).await;
    assert_eq!(ask(&client(&server)).await.reason(), FailureReason::ContextOverflow);
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up() {
    let server = always(|| stream_of(vec![Step::Waits(3_000), text("late")])).await;
    let settings = ProviderSettings { first_byte_timeout_ms: 100, ..settings(&server.base_url) };
    let outcome = ask(&client_with(&settings, ApiKey::none())).await;
    assert_eq!(outcome.reason(), FailureReason::Timeout);
    assert!(outcome.error().message.contains("first_byte_timeout_ms"), "{}", outcome.error());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_stream_may_last_as_long_as_it_moves() {
    let ping = || vec![Step::Waits(60), Step::Sends(": ping\n\n".to_owned())];
    let steps =
        move || [vec![text("at ")], ping(), ping(), ping(), vec![text("last")], end()].concat();
    let server = always(move || stream_of(steps())).await;
    let settings = ProviderSettings { idle_timeout_ms: 150, ..settings(&server.base_url) };
    let outcome = ask(&client_with(&settings, ApiKey::none())).await;
    assert_eq!(outcome.answer.unwrap().text(), "at last");
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let settings = settings("http://127.0.0.1:9/v1");
    let outcome = ask(&client_with(&settings, ApiKey::none())).await;
    assert_eq!(outcome.reason(), FailureReason::Connection);
    assert!(outcome.error().message.contains("127.0.0.1:9"), "{}", outcome.error());
}

#[tokio::test]
async fn a_request_that_is_dropped_is_given_up() {
    struct Gone(Arc<AtomicBool>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    let server = always(move || {
        let guard = Gone(flag.clone());
        let endless = futures_util::stream::unfold(guard, |guard| async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((Ok::<_, std::io::Error>(": ping\n\n"), guard))
        });
        Response::new(axum::body::Body::from_stream(endless))
    })
    .await;
    let client = client(&server);
    let asking = tokio::time::timeout(Duration::from_millis(100), ask(&client));
    assert!(asking.await.is_err());
    for _ in 0..100 {
        if gone.load(Ordering::SeqCst) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server still streams");
}

#[tokio::test]
async fn a_stream_without_an_end_is_ended() {
    let server = always(|| stream_of(vec![text(&"word ".repeat(1_000)); 100])).await;
    let client = HttpClient { stream_max_bytes: 100_000, ..client(&server) };
    let outcome = ask(&client).await;
    assert_eq!(outcome.reason(), FailureReason::InvalidResponse);
    assert!(outcome.error().message.contains("exceeds 100,000 bytes"), "{:?}", outcome.error());
    assert!(outcome.received.len() < 100_000);
}

#[tokio::test]
async fn a_refusal_that_is_sent_slowly_is_read_for_a_limited_time() {
    let drip = || vec![vec![Step::Sends("x".into()), Step::Waits(100)]; 1_000].concat();
    let server = always(move || {
        let mut response = stream_of(drip());
        *response.status_mut() = axum::http::StatusCode::UNAUTHORIZED;
        response
    })
    .await;
    let settings = ProviderSettings { first_byte_timeout_ms: 300, ..settings(&server.base_url) };
    let client = client_with(&settings, ApiKey::none());
    let outcome = tokio::time::timeout(Duration::from_secs(30), ask(&client)).await.unwrap();
    assert_eq!(outcome.reason(), FailureReason::Auth);
}

#[tokio::test]
async fn white_space_before_an_answer_is_not_part_of_it() {
    let pause = || vec![Step::Sends(" \n".repeat(4_000)); 50];
    let server = always(move || stream_of([pause(), vec![text("late")], end()].concat())).await;
    assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "late");
}
