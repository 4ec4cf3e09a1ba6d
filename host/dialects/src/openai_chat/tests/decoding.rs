//! Answers as servers stream them, with their small differences.

use serde_json::json;

use super::*;
use crate::dialect::{ModelResponse, StreamError, StreamFrame};
use crate::message::{StopReason, TokenUsage};
use crate::request::StreamPart;

/// The decoded answer and its streamed parts.
fn decoded(frames: &[&str]) -> (Result<ModelResponse, StreamError>, Vec<String>) {
    let mut decoder = OpenAiChat::default().new_decoder();
    let mut received = Vec::new();
    let mut receive = |part: StreamPart<'_>| {
        received.push(match part {
            StreamPart::Text(text) => text.to_owned(),
            StreamPart::Thinking(text) => format!("({text})"),
            StreamPart::ToolCall { name } => format!("{name}()"),
        });
    };
    for data in frames {
        if let Err(fault) = decoder.push(StreamFrame { event: "", data }, &mut receive) {
            return (Err(fault), received);
        }
    }
    (decoder.finish(), received)
}

fn answer(deltas: &[Value]) -> (ModelResponse, Vec<String>) {
    let chunk = |delta: &Value| json!({"choices": [{"index": 0, "delta": delta}]}).to_string();
    let mut frames: Vec<_> = deltas.iter().map(chunk).collect();
    frames.push(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string());
    frames.push("[DONE]".to_owned());
    let (answer, received) = decoded(&frames.iter().map(String::as_str).collect::<Vec<_>>());
    (answer.unwrap(), received)
}

fn call(id: &str, name: &str, arguments: Value) -> ChatBlock {
    let (id, name) = (id.to_owned(), name.to_owned());
    ChatBlock::ToolCall(ToolCallBlock { id, name, arguments, thought_signature: None })
}

fn thinking(text: &str, field: &str) -> ChatBlock {
    let thinking_signature = Some(field.to_owned());
    ChatBlock::Thinking { thinking: text.to_owned(), thinking_signature, redacted: false }
}

#[test]
fn parallel_calls_are_put_together_by_their_index() {
    let piece = |index: u64, piece: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]});
    let begin = |index: u64, id: &str| {
        json!({"tool_calls": [{"index": index, "id": id, "type": "function",
        "function": {"name": "read", "arguments": ""}}]})
    };
    let (answer, received) = answer(&[
        json!({"role": "assistant", "content": null}),
        json!({"content": "I read."}),
        begin(0, "a"),
        piece(0, "{\"pa"),
        begin(1, "b"),
        piece(0, "th\":1}"),
        piece(1, "{}"),
    ]);
    let calls = [call("a", "read", json!({"path": 1})), call("b", "read", json!({}))];
    assert_eq!(answer.content[1..], calls);
    assert_eq!(answer.stop_reason, StopReason::ToolUse, "although the reason is `stop`");
    assert_eq!(received, ["I read.", "read()", "read()"]);
}

#[test]
fn calls_without_an_index_are_distinguished() {
    let whole = |id: &str, arguments: Value| json!({"tool_calls": [{"id": id, "function": {"name": "f", "arguments": arguments}}]});
    let (without, _) = answer(&[whole("a", json!("{\"x\":1}")), whole("b", json!({"y": 2}))]);
    let expected = [call("a", "f", json!({"x": 1})), call("b", "f", json!({"y": 2}))];
    assert_eq!(without.content, expected);
    let same = |id: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "f", "arguments": "{}"}}]});
    assert_eq!(answer(&[same("a"), same("b")]).0.content.len(), 2);
}

#[test]
fn arguments_that_are_not_json_stay_text_and_empty_ones_are_an_object() {
    let one = |arguments: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}]});
    assert_eq!(answer(&[one("")]).0.content, [call("a", "f", json!({}))]);
    assert_eq!(answer(&[one("{\"x\":")]).0.content, [call("a", "f", json!("{\"x\":"))]);
}

#[test]
fn thinking_has_many_names() {
    for field in ["reasoning_content", "reasoning", "reasoning_text"] {
        let (answer, received) =
            answer(&[json!({field: "h"}), json!({field: "m"}), json!({"content": "yes"})]);
        assert_eq!(answer.content, [thinking("hm", field), ChatBlock::text("yes")]);
        assert_eq!(received, ["(h)", "(m)", "yes"]);
    }
    let twice = json!({"reasoning": "hm", "reasoning_content": "hm"});
    assert_eq!(answer(&[twice]).0.content, [thinking("hm", "reasoning_content")]);
    let parts = json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"}]});
    assert_eq!(
        answer(&[parts]).0.content,
        [thinking("hm", "reasoning_content"), ChatBlock::text("yes")]
    );
}

#[test]
fn every_token_of_a_prompt_is_counted_once() {
    let check = |usage: Value, expected: TokenUsage| {
        let stop = json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage});
        let (answer, _) = decoded(&[&stop.to_string()]);
        assert_eq!(answer.unwrap().usage, expected.with_total(), "{usage}");
    };
    let openai = json!({"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5}});
    let counts = TokenUsage {
        input: 30,
        output: 9,
        cache_read: 60,
        cache_write: 10,
        ..TokenUsage::default()
    };
    check(openai, counts);
    let deepseek =
        json!({"prompt_tokens": 100, "completion_tokens": 9, "prompt_cache_hit_tokens": 60});
    check(deepseek, TokenUsage { input: 40, output: 9, cache_read: 60, ..TokenUsage::default() });
    let senseless = json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}});
    check(senseless, TokenUsage { cache_read: 5, ..TokenUsage::default() });
    check(json!(null), TokenUsage::default());
}

#[test]
fn why_it_stopped() {
    let check = |finish_reason: &str, expected: StopReason| {
        let chunk =
            json!({"choices": [{"delta": {"content": "x"}, "finish_reason": finish_reason}]});
        let answer = decoded(&[&chunk.to_string()]).0.unwrap();
        let reasons = (answer.stop_reason, answer.raw_stop_reason.as_str());
        assert_eq!(reasons, (expected, finish_reason));
    };
    check("stop", StopReason::Stop);
    check("eos", StopReason::Stop);
    check("length", StopReason::Length);
    check("content_filter", StopReason::Error);
    check("model_context_window_exceeded", StopReason::Length);
}

#[test]
fn a_stream_without_its_end_is_cut() {
    let text = json!({"choices": [{"delta": {"content": "x"}}]}).to_string();
    assert_eq!(decoded(&[&text]).0, Err(StreamError::Cut));
    assert_eq!(decoded(&[]).0, Err(StreamError::Cut));
    // Some servers forget the reason and send the end.
    assert_eq!(decoded(&[&text, "[DONE]"]).0.unwrap().stop_reason, StopReason::Stop);
}

#[test]
fn errors_in_a_stream_are_errors() {
    let error =
        json!({"error": {"message": "too long", "code": "context_length_exceeded"}, "choices": []});
    let (fault, _) = decoded(&[&error.to_string()]);
    let Err(StreamError::Refused(refusal)) = fault else { panic!("{fault:?}") };
    assert_eq!((refusal.status, refusal.code.as_str()), (None, "context_length_exceeded"));
    for nonsense in ["{\"cho", "7", "<html>"] {
        assert!(
            matches!(decoded(&[nonsense]).0, Err(StreamError::InvalidFrame { .. })),
            "{nonsense}"
        );
    }
    // Azure's first chunk has no choice; some have `error: null`.
    let first = json!({"choices": [], "error": null, "prompt_filter_results": []}).to_string();
    assert!(decoded(&[&first, "[DONE]"]).0.is_ok());
}
