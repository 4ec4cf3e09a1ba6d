//! Streams as Anthropic sends them, and as it breaks them off.

use serde_json::json;

use super::*;
use crate::dialect::{ModelResponse, StreamError, StreamFrame};
use crate::failure::ProviderRefusal;
use crate::message::{ChatBlock, StopReason, TokenUsage, ToolCallBlock};
use crate::request::StreamPart;

/// The decoded answer and its streamed parts.
fn read(frames: &[Value]) -> (Result<ModelResponse, StreamError>, Vec<String>) {
    let texts: Vec<_> = frames.iter().map(Value::to_string).collect();
    read_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read_texts(frames: &[&str]) -> (Result<ModelResponse, StreamError>, Vec<String>) {
    let mut decoder = Anthropic::default().new_decoder();
    let mut received = Vec::new();
    for data in frames {
        let mut parts = |part: StreamPart<'_>| received.push(format!("{part:?}"));
        if let Err(fault) = decoder.push(StreamFrame { event: "", data }, &mut parts) {
            return (Err(fault), received);
        }
    }
    (decoder.finish(), received)
}

fn start() -> Value {
    let usage = json!({
        "input_tokens": 12, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 4_000,
        "output_tokens": 1,
    });
    json!({ "type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    } })
}

fn open(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn close(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    [
        json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 89 } }),
        json!({ "type": "message_stop" }),
    ]
}

/// A stream of one text that ends for a reason.
fn ended(reason: &str) -> ModelResponse {
    let text = [
        start(),
        open(0, json!({ "type": "text", "text": "" })),
        delta(0, json!({ "type": "text_delta", "text": "well" })),
        close(0),
    ];
    read(&[&text[..], &end(reason)[..]].concat()).0.unwrap()
}

#[test]
fn thinking_text_and_calls_are_put_together() {
    let frames = [
        start(),
        open(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        json!({ "type": "ping" }),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Let me " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "see 看" })),
        delta(0, json!({ "type": "signature_delta", "signature": "EqQBCgIYAhIM+/=" })),
        close(0),
        open(1, json!({ "type": "redacted_thinking", "data": "b3BhcXVl" })),
        close(1),
        open(2, json!({ "type": "text", "text": "" })),
        delta(2, json!({ "type": "text_delta", "text": "I read " })),
        delta(2, json!({ "type": "text_delta", "text": "two." })),
        close(2),
        open(3, json!({ "type": "tool_use", "id": "toolu_1", "name": "read", "input": {} })),
        delta(3, json!({ "type": "input_json_delta", "partial_json": "" })),
        delta(3, json!({ "type": "input_json_delta", "partial_json": "{\"path\": \"a" })),
        delta(3, json!({ "type": "input_json_delta", "partial_json": ".rs\"}" })),
        close(3),
        open(4, json!({ "type": "tool_use", "id": "toolu_2", "name": "list", "input": {} })),
        close(4),
    ];
    let (answer, received) = read(&[&frames[..], &end("tool_use")[..]].concat());
    let call = |id: &str, name: &str, arguments| {
        ChatBlock::ToolCall(ToolCallBlock {
            id: id.into(),
            name: name.into(),
            arguments,
            thought_signature: None,
        })
    };
    let expected = ModelResponse {
        content: vec![
            ChatBlock::Thinking {
                thinking: "Let me see 看".into(),
                thinking_signature: Some("EqQBCgIYAhIM+/=".into()),
                redacted: false,
            },
            ChatBlock::Thinking {
                thinking: String::new(),
                thinking_signature: Some("b3BhcXVl".into()),
                redacted: true,
            },
            ChatBlock::text("I read two."),
            call("toolu_1", "read", json!({ "path": "a.rs" })),
            call("toolu_2", "list", json!({})),
        ],
        usage: TokenUsage {
            input: 12,
            output: 89,
            cache_read: 4_000,
            cache_write: 300,
            total_tokens: 4_401,
            ..TokenUsage::default()
        },
        stop_reason: StopReason::ToolUse,
        raw_stop_reason: "tool_use".into(),
        response_id: "msg_01".into(),
        model: "claude-sonnet-4-5-20250929".into(),
    };
    assert_eq!(answer, Ok(expected));
    let expected = [
        "Thinking(\"Let me \")",
        "Thinking(\"see 看\")",
        "Text(\"I read \")",
        "Text(\"two.\")",
        "ToolCall { name: \"read\" }",
        "ToolCall { name: \"list\" }",
    ];
    assert_eq!(received, expected);
}

#[test]
fn raw_stop_reasons_are_kept() {
    let reasons = [
        ("end_turn", StopReason::Stop),
        ("stop_sequence", StopReason::Stop),
        ("pause_turn", StopReason::Stop),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("refusal", StopReason::Error),
        ("solar_flare", StopReason::Other),
    ];
    for (raw, reason) in reasons {
        let answer = ended(raw);
        assert_eq!((answer.raw_stop_reason.as_str(), answer.stop_reason), (raw, reason));
    }
}

#[test]
fn the_last_usage_counts() {
    let mut frames = vec![start()];
    frames.extend(end("end_turn"));
    frames[1]["usage"] =
        json!({ "input_tokens": 20, "output_tokens": 5, "cache_read_input_tokens": null });
    let usage = read(&frames).0.unwrap().usage;
    assert_eq!((usage.input, usage.output, usage.cache_read), (20, 5, 4_000));
    assert_eq!(usage.prompt_tokens(), 4_320);
}

#[test]
fn an_error_in_the_stream_refuses() {
    let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
    let frames = [start(), json!({ "type": "error", "error": error, "request_id": "req_1" })];
    let refusal = ProviderRefusal {
        status: None,
        code: "overloaded_error".into(),
        message: "Overloaded".into(),
    };
    assert_eq!(read(&frames).0, Err(StreamError::Refused(refusal)));
    let plain = ProviderRefusal { message: "no quota".into(), ..ProviderRefusal::default() };
    assert_eq!(read_texts(&["{\"error\":\"no quota\"}"]).0, Err(StreamError::Refused(plain)));
}

#[test]
fn a_stream_without_its_end_is_cut() {
    let frames = [start(), open(0, json!({ "type": "text", "text": "half" }))];
    assert_eq!(read(&frames).0, Err(StreamError::Cut));
    assert_eq!(read(&[]).0, Err(StreamError::Cut));
}

#[test]
fn a_frame_that_is_not_json_is_invalid() {
    assert!(matches!(read_texts(&["<html>"]).0, Err(StreamError::InvalidFrame { .. })));
    let early = [start(), delta(0, json!({ "type": "text_delta", "text": "a" }))];
    assert!(matches!(read(&early).0, Err(StreamError::InvalidFrame { .. })));
    let broken = [
        start(),
        open(0, json!({ "type": "tool_use", "id": "1", "name": "read", "input": {} })),
        delta(0, json!({ "type": "input_json_delta", "partial_json": "{\"path\":" })),
        close(0),
    ];
    let fault = read(&[&broken[..], &end("tool_use")[..]].concat()).0;
    let Err(StreamError::InvalidFrame { reason }) = fault else { panic!("{fault:?}") };
    assert!(reason.contains("the arguments of read"), "{reason}");
}

#[test]
fn a_call_that_the_limit_cut_was_never_made() {
    for json in ["", "{\"path\":"] {
        let frames = [
            start(),
            open(0, json!({ "type": "text", "text": "I write" })),
            open(1, json!({ "type": "tool_use", "id": "1", "name": "write", "input": {} })),
            delta(1, json!({ "type": "input_json_delta", "partial_json": json })),
        ];
        let answer = read(&[&frames[..], &end("max_tokens")[..]].concat()).0.unwrap();
        assert_eq!(answer.content, [ChatBlock::text("I write")]);
        assert_eq!(answer.stop_reason, StopReason::Length);
    }
}

#[test]
fn unknown_blocks_are_kept_and_sent_back_as_they_came() {
    let search =
        json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
    let frames = [
        start(),
        open(0, json!({ "type": "compaction", "content": null })),
        delta(0, json!({ "type": "compaction_delta", "content": "so ", "signature": "c2ln" })),
        delta(0, json!({ "type": "compaction_delta", "content": "far" })),
        open(1, search),
        delta(1, json!({ "type": "input_json_delta", "partial_json": "{\"query\":\"x\"}" })),
        open(
            2,
            json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] }),
        ),
    ];
    let answer = read(&[&frames[..], &end("end_turn")[..]].concat()).0.unwrap();
    let items = [
        json!({ "type": "compaction", "content": "so far", "signature": "c2ln" }),
        json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } }),
        json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] }),
    ];
    let expected = items.clone().map(|item| ChatBlock::ProviderItem { api: API.into(), item });
    assert_eq!(answer.content, expected);

    let answer = crate::conversations::assistant_message(API, MODEL, answer.content);
    let messages = vec![ChatMessage::from_user_text("a"), answer, ChatMessage::from_user_text("b")];
    let body = Anthropic::default().encode(&crate::conversations::request(MODEL, messages));
    assert_eq!(body["messages"][1]["content"], json!(items));
}
