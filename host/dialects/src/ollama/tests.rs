use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::conversations::conversations;
use crate::dialect::{ModelResponse, StreamError, StreamFrame};
use crate::failure::ProviderRefusal;
use crate::inbound::{InboundDialect, ParseContext, ParsedEntry};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, StopReason, ToolCallBlock, ToolResultMessage,
    UserMessage,
};
use crate::request::{StreamPart, ThinkingLevel};
use ctxhost_engine_api::ToolSpec;

fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest { model: "qwen3:8b".into(), messages, ..ModelRequest::default() }
}

fn messages(request: &ModelRequest) -> Vec<Value> {
    Ollama.encode(request)["messages"].as_array().unwrap().clone()
}

fn decoded(lines: &[&str]) -> (Result<ModelResponse, StreamError>, String) {
    let mut decoder = Ollama.new_decoder();
    let mut received = String::new();
    let mut parts = |part: StreamPart<'_>| match part {
        StreamPart::Text(text) => received.push_str(text),
        StreamPart::Thinking(text) => received.push_str(&format!("<{text}>")),
        StreamPart::ToolCall { name } => received.push_str(&format!("[{name}]")),
    };
    for data in lines {
        if let Err(fault) = decoder.push(StreamFrame { event: "", data }, &mut parts) {
            return (Err(fault), received);
        }
    }
    (decoder.finish(), received)
}

/// The call ids of results in these messages after the first `known`.
fn answered_calls(
    messages: &[Value],
    known: usize,
    tool_name_of: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (before, new) = messages.split_at(known);
    let before: Vec<String> = before.iter().map(Value::to_string).collect();
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let context = ParseContext { is_start: known == 0, items: &before, tool_name_of };
    let mut items = new.iter().cloned().map(Ok);
    let groups = OllamaInbound.parse_items(&mut items, context).unwrap();
    let entries = groups.into_iter().flat_map(|group| group.entries);
    entries
        .filter_map(|entry| match entry {
            ParsedEntry::Message(ChatMessage::ToolResult(result)) => Some(result.tool_call_id),
            _ => None,
        })
        .collect()
}

#[test]
fn results_without_ids_find_their_calls() {
    let call = |name: &str| json!({ "function": { "name": name, "arguments": {} } });
    let result = |name: &str| json!({ "role": "tool", "tool_name": name, "content": "r" });
    let unnamed = json!({ "role": "tool", "content": "r" });
    let answer = json!({ "role": "assistant", "content": "",
        "tool_calls": [call("read"), call("list"), call("read")] });
    let none = |_: &str| None;
    let (read, list) = (result("read"), result("list"));
    let round = [answer.clone(), list.clone(), read.clone(), read.clone()];
    assert_eq!(answered_calls(&round, 0, &none), ["0.1 unnamed", "0.0 unnamed", "0.2 unnamed"]);
    let all = [answer.clone(), unnamed.clone(), unnamed.clone(), unnamed.clone(), unnamed.clone()];
    assert_eq!(answered_calls(&all, 0, &none), ["0.0 unnamed", "0.1 unnamed", "0.2 unnamed"]);
    // A request that continues between the results.
    let earlier = |id: &str| match id {
        "0.0 unnamed" | "0.2 unnamed" => Some("read".to_owned()),
        "0.1 unnamed" => Some("list".to_owned()),
        _ => None,
    };
    for (known, rest) in [
        (1, &["0.1 unnamed", "0.0 unnamed", "0.2 unnamed"][..]),
        (2, &["0.0 unnamed", "0.2 unnamed"]),
        (3, &["0.2 unnamed"]),
    ] {
        assert_eq!(answered_calls(&round, known, &earlier), rest);
    }
    let more = [&round[..], &[unnamed]].concat();
    assert_eq!(answered_calls(&more, 4, &earlier), Vec::<String>::new());
    // The session names the calls otherwise since items before them were removed.
    assert_eq!(answered_calls(&round, 2, &none), Vec::<String>::new());
    // Ids win over names.
    let with_id = json!({ "role": "assistant", "content": "",
        "tool_calls": [{ "id": "a", "function": { "name": "read", "arguments": {} } }, call("read")] });
    let second =
        json!({ "role": "tool", "tool_call_id": "a", "tool_name": "read", "content": "r" });
    assert_eq!(answered_calls(&[with_id, second, result("read")], 0, &none), ["a", "0.1 unnamed"]);
}

#[test]
fn a_request_tells_the_window_and_forbids_to_cut() {
    let asked = ModelRequest {
        system: "Be brief.".into(),
        window_tokens: 32_768,
        max_output_tokens: 2_000,
        temperature: Some(0.7),
        thinking: ThinkingLevel::Medium,
        tools: vec![ToolSpec {
            name: "read_file".into(),
            description: "Reads.".into(),
            input_schema: json!({ "type": "object" }),
        }],
        ..request(vec![ChatMessage::from_user_text("hi")])
    };
    let body = Ollama.encode(&asked);
    assert_eq!(
        body,
        json!({
            "model": "qwen3:8b",
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "hi" },
            ],
            "stream": true,
            "truncate": false,
            "think": true,
            "tools": [{ "type": "function", "function": {
                "name": "read_file", "description": "Reads.", "parameters": { "type": "object" },
            }}],
            "options": { "num_ctx": 32_768, "num_predict": 2_000, "temperature": 0.7 },
        })
    );
}

#[test]
fn ol_1_a_conversation_of_nothing_still_asks() {
    let asked = ModelRequest { system: "Be brief.".into(), ..request(Vec::new()) };
    let written = messages(&asked);
    assert_eq!((written.len(), &written[1]["role"]), (2, &json!("user")));
}

#[test]
fn an_unknown_window_is_not_sent() {
    let body = Ollama.encode(&request(vec![ChatMessage::from_user_text("hi")]));
    assert_eq!((body.get("options"), body.get("tools")), (None, None));
    assert_eq!(body["think"], json!(false));
}

#[test]
fn only_gpt_oss_hears_how_much_to_think() {
    let levels = [ThinkingLevel::Low, ThinkingLevel::High, ThinkingLevel::Off];
    let think = |model: &str| {
        levels.map(|thinking| {
            let request = ModelRequest { model: model.into(), thinking, ..request(Vec::new()) };
            Ollama.encode(&request)["think"].clone()
        })
    };
    assert_eq!(think("gpt-oss:20b"), [json!("low"), json!("high"), json!(false)]);
    assert_eq!(think("qwen3:8b"), [json!(true), json!(true), json!(false)]);
}

#[test]
fn results_name_their_tool_and_their_images_follow_them() {
    let image = ChatBlock::Image { data: "AAAA".into(), mime_type: "image/png".into() };
    let call = |id: &str, name: &str| {
        ChatBlock::ToolCall(ToolCallBlock {
            id: id.into(),
            name: name.into(),
            arguments: json!({ "n": 1 }),
            thought_signature: None,
        })
    };
    let result = |id: &str, content: Vec<ChatBlock>| {
        ChatMessage::ToolResult(ToolResultMessage {
            tool_call_id: id.into(),
            content,
            ..ToolResultMessage::default()
        })
    };
    let answer = AssistantMessage {
        content: vec![
            ChatBlock::Thinking {
                thinking: "hm".into(),
                thinking_signature: None,
                redacted: false,
            },
            ChatBlock::text("let me see"),
            call("c1", "look"),
            call("c2", "list"),
        ],
        api: API.into(),
        ..AssistantMessage::default()
    };
    let user = UserMessage { content: vec![ChatBlock::text("what?"), image.clone()], timestamp: 0 };
    let written = messages(&request(vec![
        ChatMessage::User(user),
        ChatMessage::Assistant(answer),
        result("c1", vec![image]),
        result("c2", vec![ChatBlock::text("a\nb")]),
    ]));
    let call = |id: &str, name: &str| json!({ "id": id, "function": { "name": name, "arguments": { "n": 1 } } });
    assert_eq!(
        Value::from(written),
        json!([
            { "role": "user", "content": "what?", "images": ["AAAA"] },
            { "role": "assistant", "content": "let me see", "thinking": "hm",
              "tool_calls": [call("c1", "look"), call("c2", "list")] },
            { "role": "tool", "content": "(the images follow below)", "tool_name": "look",
              "tool_call_id": "c1" },
            { "role": "tool", "content": "a\nb", "tool_name": "list", "tool_call_id": "c2" },
            { "role": "user", "content": "(images of the results)", "images": ["AAAA"] },
        ])
    );
}

#[test]
fn a_stream_becomes_an_answer() {
    let (answer, received) = decoded(&[
        r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00.1Z","message":{"role":"assistant","content":"","thinking":"Hm"},"done":false}"#,
        r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00.2Z","message":{"role":"assistant","content":"Hel"},"done":false}"#,
        "",
        r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00.3Z","message":{"role":"assistant","content":"lo"},"done":false}"#,
        r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00.4Z","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"total_duration":5,"load_duration":1,"prompt_eval_count":26,"prompt_eval_cached_count":20,"prompt_eval_duration":1,"eval_count":9,"eval_duration":2}"#,
    ]);
    let answer = answer.unwrap();
    assert_eq!(received, "<Hm>Hello");
    assert_eq!(
        answer.content,
        [
            ChatBlock::Thinking {
                thinking: "Hm".into(),
                thinking_signature: None,
                redacted: false
            },
            ChatBlock::text("Hello"),
        ]
    );
    let usage = answer.usage;
    assert_eq!((usage.input, usage.cache_read, usage.output, usage.total_tokens), (6, 20, 9, 35));
    assert_eq!((answer.stop_reason, answer.raw_stop_reason.as_str()), (StopReason::Stop, "stop"));
    assert_eq!(answer.model, "qwen3:8b");
}

#[test]
fn calls_without_ids_get_the_same_ones_at_every_reading() {
    let lines = [
        r#"{"model":"m","created_at":"t1","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"read","arguments":{"path":"a"}}},{"function":{"name":"read","arguments":{"path":"a"}}}]},"done":false}"#,
        r#"{"model":"m","created_at":"t2","message":{"role":"assistant","content":"","tool_calls":[{"id":"given","function":{"index":2,"name":"list"}}]},"done":false}"#,
        r#"{"model":"m","created_at":"t3","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":4}"#,
    ];
    let read = |lines: &[&str]| {
        let (answer, received) = decoded(lines);
        let answer = answer.unwrap();
        assert_eq!(
            (answer.stop_reason, received.as_str()),
            (StopReason::ToolUse, "[read][read][list]")
        );
        let id = |block| match block {
            ChatBlock::ToolCall(call) => Some(call.id),
            _ => None,
        };
        answer.content.into_iter().filter_map(id).collect::<Vec<_>>()
    };
    let ids = read(&lines);
    assert_eq!(ids, read(&lines));
    assert!(ids[0] != ids[1] && ids[0].starts_with("call_") && ids[2] == "given", "{ids:?}");
    let later: Vec<_> = lines.iter().map(|line| line.replace("t1", "t9")).collect();
    let later: Vec<_> = later.iter().map(String::as_str).collect();
    assert_ne!(ids[0], read(&later)[0]);
}

#[test]
fn the_last_line_has_the_stop_reason() {
    let end = |reason: &str| {
        decoded(&[&format!(r#"{{"model":"m","done":true,"done_reason":"{reason}"}}"#)]).0
    };
    assert_eq!(end("length").unwrap().stop_reason, StopReason::Length);
    for word in ["load", "unload"] {
        let fault = end(word).unwrap_err();
        assert!(
            matches!(fault, StreamError::Refused(ProviderRefusal { code, .. }) if code == word)
        );
    }
}

#[test]
fn faults_are_distinguished() {
    let begun = r#"{"model":"m","message":{"role":"assistant","content":"x"},"done":false}"#;
    assert_eq!(decoded(&[begun]).0, Err(StreamError::Cut));
    assert_eq!(decoded(&[]).0, Err(StreamError::Cut));
    let error = r#"{"error":"model runner has unexpectedly stopped"}"#;
    let refused = |code: &str, message: &str| {
        Err(StreamError::Refused(ProviderRefusal {
            status: None,
            code: code.into(),
            message: message.into(),
        }))
    };
    assert_eq!(decoded(&[begun, error]).0, refused("", "model runner has unexpectedly stopped"));
    let error = r#"{"error":{"message":"too long","type":"invalid_request_error","code":null}}"#;
    assert_eq!(decoded(&[error]).0, refused("invalid_request_error", "too long"));
    let html = decoded(&["<html>502</html>"]).0;
    assert!(matches!(html, Err(StreamError::InvalidFrame { .. })));
}

/// Checks a body for what Ollama refuses or misunderstands, independently of the encoder.
fn check(body: &Value, asked: &[ChatMessage]) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut waiting = Vec::new();
    for message in messages {
        let role = message["role"].as_str().ok_or("no role")?;
        let content = message["content"].as_str().ok_or("content is not a string")?;
        if role == "tool" {
            let at = waiting.iter().position(|id| *id == message["tool_call_id"]);
            waiting.remove(at.ok_or("a result without a call")?);
            let name = message["tool_name"].as_str().filter(|name| !name.is_empty());
            name.ok_or("a result without the name of its tool")?;
            continue;
        }
        if !waiting.is_empty() {
            return Err(format!("{role} between calls and results: {waiting:?}"));
        }
        let images = message.get("images").map(|images| images.as_array().ok_or("images"));
        let images = images.transpose()?.map_or(0, Vec::len);
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            call["function"]["arguments"].as_object().ok_or("arguments are not an object")?;
            waiting.push(call["id"].clone());
        }
        if content.is_empty() && images == 0 && calls.is_none_or(Vec::is_empty) {
            return Err(format!("an empty message of {role}"));
        }
    }
    let all = body.to_string();
    for block in asked.iter().flat_map(ChatMessage::content) {
        let lost = match block {
            ChatBlock::Text { text, .. } => {
                let written = Value::from(text.as_str()).to_string();
                !all.contains(written.trim_matches('"'))
            }
            ChatBlock::Image { data, .. } => !all.contains(data.as_str()),
            _ => false,
        };
        if lost {
            return Err(format!("lost: {block:?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn valid_conversations_are_encoded_correctly(asked in conversations(API)) {
        let body = Ollama.encode(&request(asked.clone()));
        prop_assert_eq!(check(&body, &asked), Ok(()), "{:#}", body);
    }
}
