//! What users read of failures, and of pauses.

use std::sync::Mutex as StdMutex;

use super::*;

#[tokio::test]
async fn an_answer_that_the_provider_refuses_is_not_retried_and_its_reason_is_named() {
    let last = json!({"choices": [{"delta": {}, "finish_reason": "content_filter"}]});
    let server = always(move || stream_of(vec![event(last.clone())])).await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(outcome.reason(), FailureReason::Format);
    let error = outcome.error();
    assert_eq!(error.code, "content_filter");
    assert!(error.message.contains("the provider refused to answer"), "{error}");
    assert!(error.message.contains("`content_filter`"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn each_pause_is_reported_with_its_number() {
    let server = Server::start(|turn, _| match turn {
        0 => plain(429, &[("retry-after-ms", "30")], r#"{"error":{"message":"slow"}}"#),
        1 => plain(503, &[], "busy"),
        _ => whole("now"),
    })
    .await;
    let waits = StdMutex::new(Vec::new());
    let client = client(&server);
    let request = request();
    let on_wait = |wait: RetryWait| waits.lock().unwrap().push(wait);
    let answer = client.generate_with_waits(&request, &mut |_| (), &on_wait).await;
    assert_eq!(answer.unwrap().text(), "now");
    let waits = waits.into_inner().unwrap();
    let numbers: Vec<_> =
        waits.iter().map(|wait| (wait.reason, wait.retry, wait.retries)).collect();
    let expected = [(FailureReason::RateLimit, 1, 2), (FailureReason::Overloaded, 2, 2)];
    assert_eq!(numbers, expected);
    assert!(waits[0].pause >= Duration::from_millis(30), "{:?}", waits[0].pause);
}

#[tokio::test]
async fn a_server_that_closes_the_connection_is_not_one_that_cannot_be_reached() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let settings = settings(&format!("http://{address}/v1"));
    let outcome = ask(&client_with(&settings, ApiKey::none())).await;
    assert_eq!(outcome.reason(), FailureReason::Connection);
    let error = outcome.error().message.clone();
    let expected = format!("{address} closed the connection without an answer");
    assert!(error.contains(&expected), "{error}");
    assert!(!error.contains("cannot connect"), "{error}");
}

#[tokio::test]
async fn a_web_page_in_place_of_an_api_names_the_base_url() {
    let server = always(|| plain(404, &[], "<html><body>Not Found</body></html>")).await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(outcome.reason(), FailureReason::Format);
    let error = outcome.error();
    for part in ["has no API at /chat/completions", "status 404", "base_url of [providers.here]"] {
        assert!(error.message.contains(part), "{part:?} is missing in: {error}");
    }
    assert_eq!(error.status, Some(404));
}

#[tokio::test]
async fn a_refused_key_names_its_variable_and_not_its_value() {
    let body = r#"{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}"#;
    let server = always(move || plain(401, &[], body)).await;
    let key = ApiKey::from_variable(KEY.into(), "SOME_KEY");
    let outcome = ask(&client_with(&settings(&server.base_url), key)).await;
    assert_eq!(outcome.reason(), FailureReason::Auth);
    let error = outcome.error();
    assert!(error.message.contains("the key is from the variable SOME_KEY"), "{error}");
    assert!(!error.message.contains(KEY), "{error}");
}
