//! Streams as Gemini sends them, and as it breaks them off.

use serde_json::json;

use super::*;
use crate::dialect::{ModelResponse, StreamError, StreamFrame};
use crate::failure::ProviderRefusal;
use crate::message::{ChatBlock, StopReason, TokenUsage, ToolCallBlock};
use crate::request::StreamPart;

/// The decoded answer and its streamed parts.
fn read(frames: &[Value]) -> (Result<ModelResponse, StreamError>, Vec<String>) {
    let mut decoder = Gemini.new_decoder();
    let mut received = Vec::new();
    for data in frames.iter().map(Value::to_string) {
        let mut parts = |part: StreamPart<'_>| received.push(format!("{part:?}"));
        if let Err(fault) = decoder.push(StreamFrame { event: "", data: &data }, &mut parts) {
            return (Err(fault), received);
        }
    }
    (decoder.finish(), received)
}

/// A frame with parts.
fn piece(parts: Value) -> Value {
    json!({
        "candidates": [{ "content": { "parts": parts, "role": "model" }, "index": 0 }],
        "modelVersion": "gemini-3-pro-preview-11-2025",
        "responseId": "r1",
    })
}

fn ended(parts: Value, reason: &str) -> Value {
    let mut frame = piece(parts);
    frame["candidates"][0]["finishReason"] = reason.into();
    frame
}

fn tool_call(id: &str, name: &str, arguments: Value, signature: Option<&str>) -> ChatBlock {
    let thought_signature = signature.map(str::to_owned);
    ChatBlock::ToolCall(ToolCallBlock {
        id: id.into(),
        name: name.into(),
        arguments,
        thought_signature,
    })
}

#[test]
fn thoughts_text_and_calls_are_put_together() {
    let mut last = ended(json!([{ "text": "", "thoughtSignature": "QUJD" }]), "STOP");
    last["usageMetadata"] = json!({
        "promptTokenCount": 1_000, "cachedContentTokenCount": 800, "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 1_057,
    });
    let first_call = json!({
        "functionCall": { "id": "fc1", "name": "read", "args": { "path": "a" } },
        "thoughtSignature": "RA==",
    });
    let mut first = piece(json!([{ "text": "I ", "thought": true }]));
    first["usageMetadata"] = json!({ "promptTokenCount": 1_000, "totalTokenCount": 1_000 });
    let frames = [
        first,
        piece(json!([{ "text": "see 看", "thought": true }, { "text": "I read" }])),
        piece(json!([{ "text": " two." }])),
        piece(json!([first_call, { "functionCall": { "id": "fc2", "name": "list" } }])),
        last,
    ];
    let (answer, received) = read(&frames);
    let thinking = ChatBlock::Thinking {
        thinking: "I see 看".into(),
        thinking_signature: None,
        redacted: false,
    };
    let expected = ModelResponse {
        content: vec![
            thinking,
            ChatBlock::text("I read two."),
            tool_call("fc1", "read", json!({ "path": "a" }), Some("RA==")),
            tool_call("fc2", "list", json!({}), None),
            ChatBlock::Text { text: String::new(), text_signature: Some("QUJD".into()) },
        ],
        usage: TokenUsage {
            input: 200,
            output: 50,
            cache_read: 800,
            total_tokens: 1_050,
            ..TokenUsage::default()
        },
        stop_reason: StopReason::ToolUse,
        raw_stop_reason: "STOP".into(),
        response_id: "r1".into(),
        model: "gemini-3-pro-preview-11-2025".into(),
    };
    assert_eq!(answer, Ok(expected));
    let expected = [
        "Thinking(\"I \")",
        "Thinking(\"see 看\")",
        "Text(\"I read\")",
        "Text(\" two.\")",
        "ToolCall { name: \"read\" }",
        "ToolCall { name: \"list\" }",
    ];
    assert_eq!(received, expected);
}

#[test]
fn calls_without_ids_get_one_that_is_always_the_same_and_never_twice() {
    let call = json!({ "functionCall": { "name": "read", "args": {} } });
    let ids = |response: &str| {
        let mut frame = ended(json!([call, call]), "STOP");
        frame["responseId"] = response.into();
        let content = read(&[frame]).0.unwrap().content;
        let id = |block: &ChatBlock| match block {
            ChatBlock::ToolCall(call) => call.id.clone(),
            other => panic!("{other:?}"),
        };
        content.iter().map(id).collect::<Vec<_>>()
    };
    let one = ids("r1");
    assert_eq!(one, ids("r1"));
    assert!(one[0].starts_with("ctxhost_call_") && one[0] != one[1], "{one:?}");
    assert!(one.iter().all(|id| !ids("r2").contains(id)));
}

#[test]
fn text_after_a_signature_is_a_block_of_its_own() {
    let parts = json!([
        { "text": "a" }, { "text": "b", "thoughtSignature": "QUJD" }, { "text": "c" }, { "text": "d" },
    ]);
    let signed = ChatBlock::Text { text: "b".into(), text_signature: Some("QUJD".into()) };
    let expected = [ChatBlock::text("a"), signed, ChatBlock::text("cd")];
    assert_eq!(read(&[ended(parts, "STOP")]).0.unwrap().content, expected);
}

#[test]
fn other_parts_are_kept_as_they_came() {
    let code = json!({ "executableCode": { "language": "PYTHON", "code": "1" } });
    let answer = read(&[ended(json!([code, {}]), "STOP")]).0.unwrap();
    let expected = [ChatBlock::ProviderItem { api: API.into(), item: code }];
    assert_eq!(answer.content, expected);
}

#[test]
fn raw_stop_reasons_are_kept() {
    let reasons = [
        ("STOP", StopReason::Stop),
        ("MAX_TOKENS", StopReason::Length),
        ("SAFETY", StopReason::Error),
        ("MALFORMED_FUNCTION_CALL", StopReason::Error),
    ];
    for (raw, reason) in reasons {
        let answer = read(&[ended(json!([{ "text": "well" }]), raw)]).0.unwrap();
        assert_eq!((answer.raw_stop_reason.as_str(), answer.stop_reason), (raw, reason));
    }
}

#[test]
fn a_blocked_prompt_and_errors_refuse() {
    let refused = |frame: Value| match read(&[piece(json!([])), frame]).0 {
        Err(StreamError::Refused(ProviderRefusal { status: None, code, message })) => {
            (code, message)
        }
        other => panic!("{other:?}"),
    };
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } });
    let message = "the prompt was blocked: PROHIBITED_CONTENT".to_owned();
    assert_eq!(refused(blocked), ("PROHIBITED_CONTENT".into(), message));
    let error =
        json!({ "error": { "code": 503, "message": "overloaded", "status": "UNAVAILABLE" } });
    assert_eq!(refused(error.clone()), ("UNAVAILABLE".into(), "overloaded".into()));
    assert_eq!(refused(json!([error])), ("UNAVAILABLE".into(), "overloaded".into()));
    let bare = json!({ "error": { "code": 429, "message": "slow" } });
    assert_eq!(refused(bare), ("429".into(), "slow".into()));
}

#[test]
fn a_stream_without_a_reason_is_cut() {
    assert_eq!(read(&[piece(json!([{ "text": "half" }]))]).0, Err(StreamError::Cut));
    let unspecified = ended(json!([]), "FINISH_REASON_UNSPECIFIED");
    assert_eq!(read(&[unspecified]).0, Err(StreamError::Cut));
}

#[test]
fn a_frame_that_is_not_json_is_invalid() {
    let mut decoder = Gemini.new_decoder();
    let fault = decoder.push(StreamFrame { event: "", data: "<html>" }, &mut |_| {});
    assert!(matches!(fault, Err(StreamError::InvalidFrame { .. })));
}
