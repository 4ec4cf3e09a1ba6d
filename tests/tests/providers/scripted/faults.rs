//! Each fault shows as it does in the world, and costs no step of the script.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Fault, Faults, Model, ScriptedServer, Step, Steps};
use serde_json::Value;

use super::client::{Came, ask, client, frames, hear, request};

fn server(wire: Wire) -> ScriptedServer {
    let long = "The answer is long enough to be cut in the middle of it. ".repeat(4);
    ScriptedServer::start(wire, Model::new(32_000)).script(Steps::new([vec![Step::say(long)]]))
}

/// What each dialect makes of a fault.
async fn met(fault: Fault) -> Vec<(Wire, reqwest::Result<Came>)> {
    let mut all = Vec::new();
    for wire in Wire::ALL {
        let server = server(wire);
        server.fail_next(fault);
        all.push((wire, ask(&server, wire, "hello").await));
        assert_eq!(server.requests()[0].answered, Answered::Fault(fault));
        // An answer that arrives is not said again.
        if !matches!(fault, Fault::NothingSaid | Fault::SlowFirstByte { .. }) {
            let again = hear(wire, &ask(&server, wire, "hello").await.unwrap().text);
            assert!(
                again.text.starts_with("The answer is long"),
                "{wire:?} after {fault:?}: {again:?}"
            );
        }
    }
    all
}

/// The kind or code of an error in its dialect.
fn code(wire: Wire, body: &Value) -> String {
    let code = match wire {
        Wire::OpenAiChat | Wire::Responses => &body["error"]["code"],
        Wire::Anthropic => &body["error"]["type"],
        Wire::Gemini => &body["error"]["status"],
        Wire::Ollama => &body["error"],
    };
    code.as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn refusals_have_their_status_and_their_code() {
    let cases: [(Fault, [u16; 5], [&str; 4]); 6] = [
        (
            Fault::RateLimited { retry_after_s: 1 },
            [429; 5],
            [
                "rate_limit_exceeded",
                "rate_limit_exceeded",
                "rate_limit_error",
                "RESOURCE_EXHAUSTED",
            ],
        ),
        (Fault::Overloaded, [503, 503, 529, 503, 503], ["", "", "overloaded_error", "UNAVAILABLE"]),
        (Fault::ServerError, [500; 5], ["", "", "api_error", "INTERNAL"]),
        (
            Fault::Unauthorized,
            [401; 5],
            ["invalid_api_key", "invalid_api_key", "authentication_error", "UNAUTHENTICATED"],
        ),
        (
            Fault::NoCredit,
            [402; 5],
            ["insufficient_quota", "insufficient_quota", "billing_error", "FAILED_PRECONDITION"],
        ),
        (
            Fault::NoModel,
            [404; 5],
            ["model_not_found", "model_not_found", "not_found_error", "NOT_FOUND"],
        ),
    ];
    for (fault, statuses, codes) in cases {
        for (wire, came) in met(fault).await {
            let came = came.unwrap();
            assert_eq!(came.status, statuses[wire as usize], "{wire:?} {fault:?}");
            if let Some(expected) = codes.get(wire as usize) {
                assert_eq!(code(wire, &came.json()), *expected, "{wire:?} {fault:?}");
            }
            let waits = came.headers.get("retry-after").map(|seconds| seconds.to_str().unwrap());
            let limited = matches!(fault, Fault::RateLimited { .. });
            assert_eq!(waits, limited.then_some("1"), "{wire:?} {fault:?}");
        }
    }
}

#[tokio::test]
async fn nonsense_is_nonsense() {
    for (wire, came) in met(Fault::HtmlPage).await {
        let came = came.unwrap();
        assert_eq!(
            (came.status, came.headers["content-type"].to_str().unwrap()),
            (502, "text/html")
        );
        assert!(came.text.starts_with("<html>"), "{wire:?}");
    }
    for (wire, came) in met(Fault::EmptyBody).await {
        let came = came.unwrap();
        assert_eq!((came.status, came.text.as_str()), (200, ""), "{wire:?}");
    }
    for (wire, came) in met(Fault::NothingSaid).await {
        let came = came.unwrap();
        let received = hear(wire, &came.text);
        assert_eq!(
            (came.status, received.text.as_str(), received.calls.len()),
            (200, "", 0),
            "{wire:?}"
        );
        assert!(!received.stop.is_empty());
    }
    for (wire, came) in met(Fault::WrongJson).await {
        let came = came.unwrap();
        let json = came.text.lines().map(|line| line.trim_start_matches("data: "));
        let bad = json
            .filter(|line| line.starts_with('{'))
            .filter(|line| serde_json::from_str::<Value>(line).is_err());
        assert_eq!((came.status, bad.count()), (200, 1), "{wire:?}");
    }
}

#[tokio::test]
async fn streams_are_cut() {
    for (wire, came) in met(Fault::CutStream).await {
        let error = came.unwrap_err();
        assert!(error.is_body() || error.is_decode() || error.is_request(), "{wire:?}: {error:?}");
    }
    for (wire, came) in met(Fault::EndEarly).await {
        let came = came.unwrap();
        let whole = ["[DONE]", "response.completed", "message_stop", "finishReason", "done_reason"];
        assert_eq!(came.status, 200);
        assert!(!came.text.contains(whole[wire as usize]), "{wire:?}: {}", came.text);
    }
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    for (wire, came) in met(Fault::Reset).await {
        let error = came.unwrap_err();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        let mut kinds = Vec::new();
        while let Some(inner) = cause {
            kinds.extend(inner.downcast_ref::<io::Error>().map(io::Error::kind));
            cause = inner.source();
        }
        assert!(kinds.contains(&io::ErrorKind::ConnectionReset), "{wire:?}: {error:?}");
    }
}

#[tokio::test]
async fn nothing_comes_or_nothing_more() {
    for fault in [Fault::Hang, Fault::HangMidStream] {
        let server = server(Wire::Anthropic);
        server.fail_next(fault);
        let (path, body) = request(Wire::Anthropic, "hello", false);
        let post = client().post(format!("{}{path}", server.url())).json(&body);
        let post = post.header("anthropic-version", "2023-06-01");
        let response = post.timeout(Duration::from_millis(300)).send().await;
        let error = match response {
            Ok(response) if fault == Fault::HangMidStream => response.text().await.unwrap_err(),
            other => other.unwrap_err(),
        };
        assert!(error.is_timeout() || error.is_decode() || error.is_body(), "{fault:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_slow_answer_is_whole() {
    let begun = Instant::now();
    for (wire, came) in met(Fault::SlowFirstByte { delay_ms: 60 }).await {
        let received = hear(wire, &came.unwrap().text);
        assert!(received.text.starts_with("The answer"), "{wire:?}: {received:?}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn faults_come_by_number_by_chance_and_for_ever() {
    let planned = Faults::none().at(1, Fault::ServerError);
    let server = server(Wire::OpenAiChat).faults(planned);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(ask(&server, Wire::OpenAiChat, "hello").await.unwrap().status);
    }
    server.fail_always(Some(Fault::Overloaded));
    for _ in 0..2 {
        statuses.push(ask(&server, Wire::OpenAiChat, "hello").await.unwrap().status);
    }
    server.fail_always(None);
    statuses.push(ask(&server, Wire::OpenAiChat, "hello").await.unwrap().status);
    assert_eq!(statuses, [200, 500, 200, 503, 503, 200]);

    let server = server.faults(Faults::random(3, 0.5, [Fault::ServerError]));
    let mut failed = 0;
    for _ in 0..40 {
        failed += usize::from(ask(&server, Wire::OpenAiChat, "hello").await.unwrap().status == 500);
    }
    assert!((8..=32).contains(&failed), "{failed} of 40");
}

#[tokio::test]
async fn it_goes_down_and_comes_up_at_the_same_address() {
    let server = server(Wire::Gemini);
    assert!(ask(&server, Wire::Gemini, "hello").await.is_ok());
    server.go_down();
    assert!(ask(&server, Wire::Gemini, "hello").await.unwrap_err().is_connect());
    server.come_up();
    assert!(ask(&server, Wire::Gemini, "hello").await.is_ok());
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn mid_stream_errors_of_every_dialect_are_frames() {
    for after_text in [false, true] {
        for (wire, came) in met(Fault::OverflowMidStream { after_text }).await {
            let came = came.unwrap();
            assert_eq!(came.status, 200, "{wire:?}");
            let last = frames(wire, &came.text).pop().unwrap();
            let received = hear(
                wire,
                &came.text.replace(
                    &last.to_string(),
                    "{\"type\":\"-\",\"usageMetadata\":{\"promptTokenCount\":0}}",
                ),
            );
            assert_eq!(!received.text.is_empty(), after_text, "{wire:?}: {}", came.text);
        }
    }
}
