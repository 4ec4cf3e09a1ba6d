//! Anthropic messages: each block, each form of the file.

use serde_json::{Value, json};

use super::super::tests::{ANTHROPIC, messages, roles, texts};
use super::super::{ImportFormat, ImportedTranscript, import_messages};

fn of(messages: Value) -> ImportedTranscript {
    import_messages(ImportFormat::Anthropic, messages.to_string().as_bytes()).unwrap()
}

#[test]
fn a_request_body() {
    let imported = import_messages(ImportFormat::Anthropic, ANTHROPIC.as_bytes()).unwrap();
    assert_eq!(imported.model, Some(("anthropic".into(), "claude-x".into())));
    let expected = json!([
        { "role": "system", "content": "be\n\nbrief",
          "toolsAdded": [{ "name": "Read", "description": "", "parameters": { "type": "object" } }],
          "timestamp": 0 },
        { "role": "user", "content": [{ "type": "text", "text": "read it" }], "timestamp": 1000 },
        { "role": "assistant", "content": [
              { "type": "thinking", "thinking": "hm", "thinkingSignature": "sig" },
              { "type": "toolCall", "id": "c1", "name": "Read", "arguments": { "path": "a" } },
          ],
          "api": "anthropic-messages", "provider": "anthropic", "model": "claude-x",
          "stopReason": "toolUse", "timestamp": 2000 },
        { "role": "toolResult", "toolCallId": "c1", "toolName": "Read",
          "content": [{ "type": "text", "text": "no such file" }], "isError": true,
          "timestamp": 3000 },
        { "role": "user", "content": [{ "type": "text", "text": "and?" }], "timestamp": 4000 },
    ]);
    assert_eq!(Value::from(messages(&imported)), expected);
}

#[test]
fn lists_and_lines_read_alike() {
    let turns =
        [json!({ "role": "user", "content": "a" }), json!({ "role": "assistant", "content": "b" })];
    let list = of(json!(turns));
    let lines = format!("{}\n{}\n", turns[0], turns[1]);
    assert_eq!(import_messages(ImportFormat::Anthropic, lines.as_bytes()).unwrap(), list);
    assert_eq!(roles(&list), "user assistant");
    assert_eq!(list.model, None);
    assert_eq!(list.messages[1].message["model"], "unknown");
    assert_eq!(list.messages[1].message["stopReason"], "stop");
}

#[test]
fn results_come_before_the_text_of_their_message() {
    let imported = of(json!([
        { "role": "assistant", "content": [
            { "type": "tool_use", "id": "c1", "name": "a", "input": {} },
            { "type": "tool_use", "id": "c2", "name": "b" },
        ]},
        { "role": "user", "content": [
            { "type": "text", "text": "words" },
            { "type": "tool_result", "tool_use_id": "c2", "content": "two" },
            { "type": "tool_result", "tool_use_id": "c1" },
        ]},
    ]));
    assert_eq!(roles(&imported), "assistant toolResult toolResult user");
    assert_eq!(texts(&imported)[1..], ["two", "", "words"]);
    let named: Vec<Value> =
        messages(&imported)[1..3].iter().map(|m| m["toolName"].clone()).collect();
    assert_eq!(named, ["b", "a"]);
}

#[test]
fn each_block() {
    let document = json!({ "type": "document", "source": { "type": "text", "data": "d" } });
    let cases = [
        (
            json!({ "type": "text", "text": "t", "cache_control": {} }),
            json!({ "type": "text", "text": "t" }),
        ),
        (
            json!({ "type": "thinking", "thinking": "" }),
            json!({ "type": "thinking", "thinking": "" }),
        ),
        (
            json!({ "type": "redacted_thinking", "data": "d" }),
            json!({ "type": "thinking", "thinking": "", "thinkingSignature": "d", "redacted": true }),
        ),
        (
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "A" } }),
            json!({ "type": "image", "data": "A", "mimeType": "image/png" }),
        ),
        (
            json!({ "type": "image", "source": { "type": "url", "url": "https://a.example" } }),
            json!({ "type": "text", "text": "[image: https://a.example]" }),
        ),
        (document.clone(), document),
        (
            json!({ "type": "tool_use", "name": "no id" }),
            json!({ "type": "tool_use", "name": "no id" }),
        ),
        (json!({ "type": "brand_new", "x": [1] }), json!({ "type": "brand_new", "x": [1] })),
    ];
    for (written, expected) in cases {
        let imported = of(json!([{ "role": "user", "content": [written] }]));
        assert_eq!(imported.messages[0].message["content"], json!([expected]));
    }
}

#[test]
fn replies_saved_whole_keep_usage_and_end() {
    let reply = |reason: &str| {
        json!({
            "role": "assistant", "type": "message", "model": "claude-y", "content": "x", "stop_reason": reason,
            "usage": { "input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 4,
                       "cache_creation_input_tokens": 8 },
        })
    };
    let ends = [
        ("end_turn", "stop"),
        ("tool_use", "toolUse"),
        ("max_tokens", "length"),
        ("refusal", "error"),
        ("model_context_window_exceeded", "length"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
    ];
    for (reason, expected) in ends {
        let imported = of(json!([reply(reason)]));
        let message = &imported.messages[0].message;
        assert_eq!(message["stopReason"], expected);
        assert_eq!(message["usage"]["cacheWrite"], 8);
        assert_eq!(message["usage"]["totalTokens"], 15);
        assert_eq!(imported.model, Some(("anthropic".into(), "claude-y".into())));
    }
}

#[test]
fn what_is_wrong_is_noted_with_its_line() {
    let text = r#"[{"role":"user","content":["bare",{"type":"text","text":"a"},7]},
        {"role":"robot","content":"b"},
        5,
        {"role":"user","content":[{"type":"tool_result","content":"lost"}]},
        {"role":"user","content":[]},
        {"role":"assistant","content":""}]"#;
    let imported = import_messages(ImportFormat::Anthropic, text.as_bytes()).unwrap();
    assert_eq!(texts(&imported), ["a"]);
    let lines: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [1, 1, 2, 3, 4, 5, 6]);
    assert!(imported.problems[0].message.contains("a string where a content block belongs"));
}
