//! Tests of scores: offsets, markers, faults of the endpoint.

use std::sync::Arc;
use std::sync::Mutex;

use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;

use super::*;

fn echoed(tokens: &[&str], logprobs: &[Option<f64>], offsets: Option<&[usize]>) -> EchoedTokens {
    EchoedTokens {
        tokens: Some(tokens.iter().map(|token| (*token).to_owned()).collect()),
        token_logprobs: Some(logprobs.to_vec()),
        text_offset: offsets.map(<[usize]>::to_vec),
    }
}

#[test]
fn only_tokens_inside_of_the_text_count() {
    let score = |echoed: EchoedTokens| echoed.score("ab cd", 3..5).unwrap();
    let logprobs = [None, Some(-1.0), Some(-2.0), Some(-4.0)];
    let plain = echoed(&["ab", " ", "c", "d"], &logprobs, None);
    assert_eq!(score(plain), TextScore { tokens: 2, nats: 6.0 });
    // A generated token behind the text, and offsets that count a marker before it.
    let marked = echoed(
        &["<s>", "ab ", "cd", "!"],
        &[None, Some(-1.0), Some(-0.5), Some(-9.0)],
        Some(&[0, 3, 6, 8]),
    );
    assert_eq!(score(marked), TextScore { tokens: 1, nats: 0.5 });
    // A token that begins before the text is not part of it.
    let across = echoed(&["ab", " c", "d"], &logprobs[..3], Some(&[0, 2, 4]));
    assert_eq!(score(across), TextScore { tokens: 1, nats: 2.0 });
    let bare = echoed(&["ab", " ", "c", "d"], &[None; 4], None);
    assert!(matches!(bare.score("ab cd", 3..5), Err(LogprobError::Missing(_))));
}

/// A server with fixed answers, in order; the last one repeats. Returns its address and the bodies it received.
async fn serve(answers: Vec<(u16, Value)>) -> (String, Arc<Mutex<Vec<Value>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let bodies = received.clone();
    let answer = move |Json(body): Json<Value>| async move {
        let mut bodies = bodies.lock().unwrap();
        let at = bodies.len().min(answers.len() - 1);
        bodies.push(body);
        let (status, answer) = answers[at].clone();
        (StatusCode::from_u16(status).unwrap(), Json(answer)).into_response()
    };
    let router = Router::new().route("/v1/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, received)
}

fn scored() -> Value {
    json!({ "choices": [{ "text": "ab cd", "logprobs": {
        "tokens": ["ab", " ", "cd"], "token_logprobs": [null, -1.0, -3.0], "text_offset": [0, 2, 3],
    } }] })
}

#[tokio::test]
async fn a_server_that_generates_at_least_one_token_is_asked_again() {
    let refusal = json!({ "error": { "message": "max_tokens must be at least 1, got 0" } });
    let (url, received) = serve(vec![(400, refusal), (200, scored())]).await;
    let client = LogprobClient::new(&url, "m", None).unwrap();
    let expected = TextScore { tokens: 1, nats: 3.0 };
    assert_eq!(client.score("ab ", "cd").await.unwrap(), expected);
    assert_eq!(client.score("ab ", "cd").await.unwrap(), expected);
    let bodies = received.lock().unwrap();
    let asked: Vec<_> = bodies.iter().map(|body| body["max_tokens"].clone()).collect();
    assert_eq!(asked, [0, 1, 1]);
    assert_eq!((&bodies[0]["prompt"], &bodies[0]["echo"]), (&json!("ab cd"), &json!(true)));
}

#[tokio::test]
async fn faults_say_what_to_do() {
    let score = async |answers| {
        let (url, _) = serve(answers).await;
        let client = LogprobClient::new(&url, "m", None).unwrap();
        client.score("ab ", "cd").await.unwrap_err()
    };
    let bare = json!({ "choices": [{ "text": "ab cd", "logprobs": null }] });
    let error = score(vec![(200, bare)]).await.to_string();
    assert!(error.starts_with("the answer has no logprobs; the endpoint must support"), "{error}");
    let failing = json!({ "error": { "message": "out of memory" } });
    let error = score(vec![(500, failing)]).await.to_string();
    assert!(error.contains("out of memory"), "{error}");
    let long = json!({ "error": { "message": "This model's maximum context length is 8 tokens, however you requested 90 tokens" } });
    let error = score(vec![(400, long)]).await;
    assert!(matches!(error, LogprobError::TooLong(_)), "{error}");
}

#[test]
fn a_key_that_is_not_set_is_an_error() {
    let error = LogprobClient::new("http://127.0.0.1:1", "m", Some("CTXHOST_NO_SUCH_KEY"));
    assert!(error.unwrap_err().to_string().contains("CTXHOST_NO_SUCH_KEY is not set"));
}
