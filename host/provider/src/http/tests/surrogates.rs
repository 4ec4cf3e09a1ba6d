//! Answers whose JSON has escapes of half a surrogate pair.

use super::*;
use ctxhost_dialects::ChatBlock;

/// A chunk with this JSON as its delta, written as it is.
fn delta(json: &str) -> Step {
    Step::Sends(format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{json}}}]}}\n\n"))
}

#[tokio::test]
async fn an_emoji_in_two_deltas_is_one_character() {
    let steps = || {
        let halves =
            vec![delta(r#"{"content":"so \ud83d"}"#), delta(r#"{"content":"\ude00 it is"}"#)];
        [halves, end()].concat()
    };
    let server = always(move || stream_of(steps())).await;
    let outcome = ask(&client(&server)).await;
    assert_eq!(outcome.answer.unwrap().text(), "so \u{1f600} it is");
    assert_eq!(outcome.received, "so \u{1f600} it is");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn half_an_emoji_fails_neither_a_stream_nor_a_document() {
    let steps = || [vec![delta(r#"{"content":"a \ud83d cut"}"#)], end()].concat();
    let server = always(move || stream_of(steps())).await;
    assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "a \u{fffd} cut");
    let document = r#"{"choices":[{"message":{"role":"assistant","content":"cut \ud83d"},"finish_reason":"stop"}]}"#;
    let headers = [("content-type", "application/json")];
    let server = always(move || plain(200, &headers, document)).await;
    assert_eq!(ask(&client(&server)).await.answer.unwrap().text(), "cut \u{fffd}");
}

#[tokio::test]
async fn half_an_emoji_in_arguments_is_a_replacement_character() {
    let call = |arguments: &str| {
        let function = format!(r#"{{"name":"write","arguments":{arguments}}}"#);
        delta(&format!(r#"{{"tool_calls":[{{"index":0,"id":"c","function":{function}}}]}}"#))
    };
    // Escaped twice: the arguments are JSON inside JSON.
    let steps = move || {
        let deltas = vec![call(r#""{\"a\":\"\\ud83d""#), call(r#""\\ude00\",\"b\":\"\\ud83d\"}""#)];
        [deltas, end()].concat()
    };
    let server = always(move || stream_of(steps())).await;
    let answer = ask(&client(&server)).await.answer.unwrap();
    let [ChatBlock::ToolCall(call)] = answer.content.as_slice() else { panic!("{answer:?}") };
    assert_eq!(call.arguments, json!({"a": "\u{1f600}", "b": "\u{fffd}"}));
}
