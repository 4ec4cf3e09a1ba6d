//! Recorded streams of OpenAI, shortened to the decoded fields.

use super::*;
use crate::dialect::{ModelResponse, StreamFrame};
use crate::failure::ProviderRefusal;
use crate::message::StopReason;
use crate::request::StreamPart;

fn decoded(events: &[Value]) -> (Result<ModelResponse, StreamError>, String) {
    let mut decoder = OpenAiResponses.new_decoder();
    let mut received = String::new();
    let mut parts = |part: StreamPart<'_>| match part {
        StreamPart::Text(text) => received.push_str(text),
        StreamPart::Thinking(text) => received.push_str(&format!("<{text}>")),
        StreamPart::ToolCall { name } => received.push_str(&format!("[{name}]")),
    };
    for event in events {
        let (data, name) = (event.to_string(), event["type"].as_str().unwrap_or_default());
        if let Err(fault) = decoder.push(StreamFrame { event: name, data: &data }, &mut parts) {
            return (Err(fault), received);
        }
    }
    (decoder.finish(), received)
}

fn created() -> Value {
    json!({ "type": "response.created", "sequence_number": 0,
        "response": { "id": "resp_1", "model": "gpt-5.1-2025-11-13", "status": "in_progress" } })
}

fn added(index: u64, item: Value) -> Value {
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

fn done(index: u64, item: Value) -> Value {
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn delta(kind: &str, index: u64, delta: &str) -> Value {
    json!({ "type": format!("response.{kind}.delta"), "output_index": index, "delta": delta })
}

fn completed() -> Value {
    json!({ "type": "response.completed", "response": {
        "id": "resp_1", "model": "gpt-5.1-2025-11-13", "status": "completed",
        "incomplete_details": null, "error": null, "output": [],
        "usage": { "input_tokens": 1200, "input_tokens_details": { "cached_tokens": 1024 },
            "output_tokens": 90, "output_tokens_details": { "reasoning_tokens": 64 },
            "total_tokens": 1290 },
    }})
}

fn incomplete(reason: &str) -> Value {
    json!({ "type": "response.incomplete", "response": {
        "id": "resp_1", "status": "incomplete", "incomplete_details": { "reason": reason },
        "usage": { "input_tokens": 10, "output_tokens": 16 } } })
}

fn message(text: &str) -> Value {
    json!({ "id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
        "phase": "final_answer",
        "content": [{ "type": "output_text", "annotations": [], "text": text }] })
}

fn function_call(arguments: &str, status: &str) -> Value {
    json!({ "id": "fc_1", "type": "function_call", "status": status, "call_id": "call_1",
        "name": "read_file", "arguments": arguments })
}

fn thought() -> Value {
    json!({ "id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAAABo",
        "summary": [{ "type": "summary_text", "text": "First." },
                    { "type": "summary_text", "text": "Then." }] })
}

#[test]
fn thinking_text_and_a_call() {
    let (answer, received) = decoded(&[
        created(),
        added(0, json!({ "id": "rs_1", "type": "reasoning", "summary": [] })),
        json!({ "type": "response.reasoning_summary_part.added", "output_index": 0 }),
        delta("reasoning_summary_text", 0, "First."),
        json!({ "type": "response.reasoning_summary_part.added", "output_index": 0 }),
        delta("reasoning_summary_text", 0, "Then."),
        done(0, thought()),
        added(1, json!({ "id": "msg_1", "type": "message", "content": [] })),
        json!({ "type": "response.content_part.added", "output_index": 1 }),
        delta("output_text", 1, "I re"),
        delta("output_text", 1, "ad."),
        json!({ "type": "response.output_text.done", "output_index": 1, "text": "I read." }),
        done(1, message("I read.")),
        added(2, function_call("", "in_progress")),
        delta("function_call_arguments", 2, "{\"path\":"),
        delta("function_call_arguments", 2, "\"a\"}"),
        done(2, function_call("{\"path\":\"a\"}", "completed")),
        completed(),
    ]);
    let answer = answer.unwrap();
    assert_eq!(received, "<First.><\n\n><Then.>I read.[read_file]");
    let signature = r#"{"v":1,"id":"msg_1","phase":"final_answer"}"#;
    assert_eq!(
        answer.content,
        [
            ChatBlock::Thinking {
                thinking: "First.\n\nThen.".into(),
                thinking_signature: Some(thought().to_string()),
                redacted: false,
            },
            ChatBlock::Text { text: "I read.".into(), text_signature: Some(signature.into()) },
            ChatBlock::ToolCall(ToolCallBlock {
                id: "call_1".into(),
                name: "read_file".into(),
                arguments: json!({ "path": "a" }),
                thought_signature: None,
            }),
        ]
    );
    let usage = answer.usage;
    assert_eq!((usage.input, usage.cache_read, usage.output), (176, 1024, 90));
    assert_eq!((usage.prompt_tokens(), usage.total_tokens), (1200, 1290));
    assert_eq!(answer.stop_reason, StopReason::ToolUse);
    assert_eq!(answer.raw_stop_reason, "completed");
    assert_eq!((answer.response_id, answer.model), ("resp_1".into(), "gpt-5.1-2025-11-13".into()));
}

#[test]
fn what_was_received_is_sent_back() {
    let (received, _) = decoded(&[
        created(),
        done(0, thought()),
        done(1, message("Hm.")),
        done(2, function_call("{}", "completed")),
        completed(),
    ]);
    let items = input(vec![answer(received.unwrap().content), result("call_1", "one")]);
    let expected = ["reasoning", "message", "function_call", "function_call_output"];
    assert_eq!(kinds(&items), expected);
    assert_eq!(items[0].to_string(), thought().to_string());
    assert_eq!(items[1]["phase"], "final_answer");
}

#[test]
fn items_that_only_the_server_knows_are_kept_whole() {
    let search = json!({ "id": "ws_1", "type": "web_search_call", "action": { "query": "x" } });
    let compaction = json!({ "id": "cmp_1", "type": "compaction", "encrypted_content": "gAAA" });
    let (answer, _) = decoded(&[done(0, search.clone()), done(1, compaction.clone()), completed()]);
    let answer = answer.unwrap();
    assert_eq!(answer.content, [item(search), item(compaction)]);
    assert_eq!(answer.stop_reason, StopReason::Stop);
}

#[test]
fn a_refusal_of_the_model_is_its_text() {
    let refused = json!({ "id": "msg_1", "type": "message",
        "content": [{ "type": "refusal", "refusal": "I can't." }] });
    let events = [delta("refusal", 0, "I can't."), done(0, refused), completed()];
    let (answer, received) = decoded(&events);
    let content = answer.unwrap().content;
    assert_eq!(received, "I can't.");
    assert!(matches!(&content[..], [ChatBlock::Text { text, .. }] if text == "I can't."));
}

#[test]
fn an_answer_that_reached_its_limit_makes_no_half_call() {
    let (answer, _) = decoded(&[
        done(0, message("so")),
        added(1, function_call("", "in_progress")),
        delta("function_call_arguments", 1, "{\"path\": \"a"),
        done(1, function_call("{\"path\": \"a", "incomplete")),
        incomplete("max_output_tokens"),
    ]);
    let answer = answer.unwrap();
    assert_eq!((answer.content.len(), answer.stop_reason), (1, StopReason::Length));
    assert_eq!(answer.raw_stop_reason, "max_output_tokens");
    let (answer, _) = decoded(&[incomplete("content_filter")]);
    assert_eq!(answer.unwrap().stop_reason, StopReason::Error);
}

#[test]
fn arguments_that_are_not_json_reach_the_tool_unchanged() {
    let (answer, _) = decoded(&[done(0, function_call("{oops", "completed")), completed()]);
    let answer = answer.unwrap();
    let call = |block: &ChatBlock| match block {
        ChatBlock::ToolCall(call) => Some(call.arguments.clone()),
        _ => None,
    };
    assert_eq!(answer.content.iter().find_map(call), Some(json!("{oops")));
}

#[test]
fn a_lesser_server_may_leave_out_what_repeats() {
    // No done events, and the whole answer at the end.
    let mut end = completed();
    end["response"]["output"] = json!([message("Hello")]);
    let (answer, _) = decoded(&[delta("output_text", 0, "Hel"), end]);
    assert_eq!(answer.unwrap().content.len(), 1);
    // Only deltas.
    let (answer, _) = decoded(&[delta("output_text", 0, "Hel"), completed()]);
    assert_eq!(answer.unwrap().content, [ChatBlock::text("Hel")]);
    // Items that are never done, and no indexes.
    let mut events = vec![
        added(0, json!({ "type": "message", "id": "m" })),
        delta("output_text", 0, "Hi"),
        added(1, function_call("", "in_progress")),
        delta("function_call_arguments", 1, "{\"a\":1}"),
        completed(),
    ];
    for event in &mut events {
        event.as_object_mut().unwrap().remove("output_index");
    }
    let (answer, _) = decoded(&events);
    let answer = answer.unwrap();
    assert_eq!((answer.content.len(), answer.stop_reason), (2, StopReason::ToolUse));
}

#[test]
fn a_failure_in_the_stream_is_a_refusal() {
    let refused = |code: &str, message: &str| {
        let (code, message) = (code.to_owned(), message.to_owned());
        Err(StreamError::Refused(ProviderRefusal { status: None, code, message }))
    };
    let message = "Your input exceeds the context window of this model.";
    let failed = json!({ "type": "response.failed", "response": { "status": "failed",
        "error": { "code": "context_length_exceeded", "message": message } } });
    assert_eq!(decoded(&[created(), failed]).0, refused("context_length_exceeded", message));
    let flat =
        json!({ "type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null });
    assert_eq!(decoded(&[flat]).0, refused("rate_limit_exceeded", "slow"));
    let nested = json!({ "type": "error", "error": { "type": "server_error", "code": null,
        "message": "oops" } });
    assert_eq!(decoded(&[nested]).0, refused("server_error", "oops"));
    let plain = json!({ "error": { "code": 503, "message": "busy" } });
    assert_eq!(decoded(&[plain]).0, refused("503", "busy"));
    let silent = json!({ "type": "response.failed", "response": { "error": null } });
    assert_eq!(decoded(&[silent]).0, refused("failed", "the provider gave no reason"));
}

#[test]
fn a_stream_that_ends_early_is_cut() {
    let events = [created(), delta("output_text", 0, "Hel"), done(0, message("Hello"))];
    assert_eq!(decoded(&events).0, Err(StreamError::Cut));
    assert_eq!(decoded(&[]).0, Err(StreamError::Cut));
}

#[test]
fn a_frame_that_is_not_json_is_invalid() {
    let mut decoder = OpenAiResponses.new_decoder();
    let frame = StreamFrame { event: "", data: "<html>" };
    let fault = decoder.push(frame, &mut |_| {}).unwrap_err();
    assert!(matches!(fault, StreamError::InvalidFrame { .. }));
}
