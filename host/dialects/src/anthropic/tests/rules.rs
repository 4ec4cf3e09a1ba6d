//! Each rule by its number.

use serde_json::json;

use super::*;
use crate::conversations::{
    assistant_message, call, image, request, result, result_of, thinking_block, tool,
};
use crate::message::{ChatBlock, ChatMessage};
use crate::request::ThinkingLevel;

fn assistant(content: Vec<ChatBlock>) -> ChatMessage {
    assistant_message(API, MODEL, content)
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::from_user_text(text)
}

fn thinking(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest { thinking: ThinkingLevel::Medium, ..request(MODEL, messages) }
}

/// Roles and the types of the blocks.
fn outline(body: &Value) -> Vec<String> {
    let outline = |message: &Value| {
        let blocks = message["content"].as_array().unwrap().iter();
        let types: Vec<_> = blocks.map(|block| block["type"].as_str().unwrap()).collect();
        format!("{}: {}", message["role"].as_str().unwrap(), types.join(" "))
    };
    body["messages"].as_array().unwrap().iter().map(outline).collect()
}

#[test]
fn a_01_the_first_message_is_of_the_user() {
    let body = encoded(vec![assistant(vec![ChatBlock::text("hello")]), user("hi")]);
    assert_eq!(body["messages"][0]["content"][0]["text"], "(session bootstrap)");
    assert_eq!(outline(&body), ["user: text", "assistant: text", "user: text"]);
    assert_eq!(outline(&encoded(Vec::new())), ["user: text"]);
}

#[test]
fn a_01_equal_neighbours_become_one() {
    let messages = vec![
        user("a"),
        user("b"),
        assistant(vec![ChatBlock::text("c")]),
        assistant(vec![ChatBlock::text("d")]),
        user("e"),
    ];
    assert_eq!(
        outline(&encoded(messages)),
        ["user: text text", "assistant: text text", "user: text"]
    );
}

#[test]
fn a_03_nothing_empty_is_sent() {
    let messages = vec![
        user("a"),
        assistant(vec![ChatBlock::text(" \n")]),
        user("\u{3000}"),
        assistant(vec![ChatBlock::text(""), call("1", "read", json!({}))]),
        result("1", "  "),
        user(""),
    ];
    let body = encoded(messages);
    assert_eq!(outline(&body), ["user: text", "assistant: tool_use", "user: tool_result"]);
    let result = &body["messages"][2]["content"][0];
    assert_eq!(result["content"], json!([{ "type": "text", "text": "(no output)" }]));
    let blank = ModelRequest { system: " ".into(), ..request(MODEL, Vec::new()) };
    assert_eq!(encoded_request(&blank).get("system"), None);
}

#[test]
fn a_04_the_last_message_is_of_the_user() {
    let body = encoded(vec![user("a"), assistant(vec![ChatBlock::text("b \n")])]);
    assert_eq!(outline(&body), ["user: text", "assistant: text", "user: text"]);
    assert_eq!(body["messages"][2]["content"][0]["text"], "Continue.");
}

#[test]
fn a_05_every_tool_use_is_answered_in_the_next_message() {
    let messages = vec![
        user("a"),
        assistant(vec![call("1", "read", json!({})), call("2", "read", json!({}))]),
        user("hurry"),
        result("2", "two"),
        assistant(vec![ChatBlock::text("well")]),
        user("b"),
    ];
    let body = encoded(messages);
    let expected = [
        "user: text",
        "assistant: tool_use tool_use",
        "user: tool_result tool_result text",
        "assistant: text",
        "user: text",
    ];
    assert_eq!(outline(&body), expected);
    let lost = &body["messages"][2]["content"][0];
    assert_eq!((&lost["tool_use_id"], &lost["is_error"]), (&json!("1"), &json!(true)));
}

#[test]
fn a_06_a_result_without_its_call_is_left_out() {
    let body = encoded(vec![user("a"), result("1", "lost"), user("b")]);
    assert_eq!(outline(&body), ["user: text text"]);
}

#[test]
fn a_07_results_come_first() {
    let messages = vec![
        user("a"),
        assistant(vec![call("1", "read", json!({}))]),
        user("wait"),
        result_of("1", vec![ChatBlock::text("no"), image()], true),
    ];
    let expected = ["user: text", "assistant: tool_use", "user: tool_result image text"];
    assert_eq!(outline(&encoded(messages)), expected);
}

#[test]
fn a_08_one_result_for_each_id_and_no_id_twice() {
    let messages = vec![
        user("a"),
        assistant(vec![call("1", "read", json!({}))]),
        result("1", "one"),
        result("1", "again"),
        assistant(vec![call("1", "read", json!({}))]),
        result("1", "two"),
    ];
    let body = encoded(messages);
    assert_eq!(body["messages"][2]["content"][0]["tool_use_id"], "1");
    assert_eq!(body["messages"][4]["content"][0]["tool_use_id"], "1_2");
    assert_eq!(body["messages"][4]["content"][0]["content"][0]["text"], "two");
}

#[test]
fn a_09_ids_and_names_are_legal() {
    let messages = vec![
        user("a"),
        assistant(vec![
            call("toolu_01", "read", json!({})),
            call("call|fc:1", "mcp.read", json!({})),
            call(&"x".repeat(65), "read", json!({})),
            call("", "", json!({})),
        ]),
    ];
    let body = encoded(messages);
    let calls = &body["messages"][1]["content"];
    assert_eq!((&calls[0]["id"], &calls[1]["name"]), (&json!("toolu_01"), &json!("mcp_read")));
    assert_eq!(calls[3]["name"], "unknown");
}

#[test]
fn a_10_input_is_an_object() {
    let messages = vec![
        user("a"),
        assistant(vec![
            call("1", "read", json!({ "path": "p" })),
            call("2", "read", json!("p")),
            call("3", "read", Value::Null),
        ]),
    ];
    let body = encoded(messages);
    let inputs = [json!({ "path": "p" }), json!({ "input": "p" }), json!({})];
    for (place, input) in inputs.iter().enumerate() {
        assert_eq!(&body["messages"][1]["content"][place]["input"], input);
    }
}

#[test]
fn a_10_calls_without_any_tool_are_declared_and_none_may_be_called() {
    let messages =
        vec![user("a"), assistant(vec![call("1", "read", json!({}))]), result("1", "one")];
    let bare = ModelRequest { tools: Vec::new(), ..request(MODEL, messages) };
    let body = encoded_request(&bare);
    assert_eq!(body["tools"][0]["name"], "read");
    assert_eq!(body["tool_choice"], json!({ "type": "none" }));
    let bare = ModelRequest { tools: Vec::new(), ..request(MODEL, vec![user("a")]) };
    assert_eq!(encoded_request(&bare).get("tools"), None);
}

#[test]
fn a_11_errors_are_text_alone() {
    let messages = vec![
        user("a"),
        assistant(vec![call("1", "read", json!({})), call("2", "read", json!({}))]),
        result_of("1", vec![image()], true),
        result_of("2", vec![image()], false),
    ];
    let body = encoded(messages);
    assert_eq!(outline(&body)[2], "user: tool_result tool_result image");
    let results = &body["messages"][2]["content"];
    assert_eq!(results[0]["content"][0]["text"], "(no output)");
    assert_eq!(results[1]["content"][0]["type"], "image");
}

#[test]
fn a_12_the_cache_ends_at_four_places() {
    let messages = vec![
        user("a"),
        assistant(vec![ChatBlock::text("b")]),
        user("c"),
        assistant(vec![call("1", "read", json!({}))]),
        result("1", "d"),
    ];
    let mark = json!({ "type": "ephemeral" });
    let body = encoded(messages.clone());
    assert_eq!(body["tools"][0]["cache_control"], mark);
    assert_eq!(body["system"][0]["cache_control"], mark);
    assert_eq!(body["messages"][0]["content"][0].get("cache_control"), None);
    assert_eq!(body["messages"][2]["content"][0]["cache_control"], mark);
    assert_eq!(body["messages"][4]["content"][0]["cache_control"], mark);

    let hour = Anthropic { one_hour_cache: true, ..Anthropic::default() };
    let body = hour.encode(&request(MODEL, messages));
    assert_eq!(body["system"][0]["cache_control"], json!({ "type": "ephemeral", "ttl": "1h" }));
}

#[test]
fn a_13_a_budget_is_at_least_1024_and_less_than_the_limit() {
    let budget = |level, max_output_tokens| {
        let asked = ModelRequest {
            thinking: level,
            max_output_tokens,
            temperature: Some(0.2),
            ..request(MODEL, vec![user("a")])
        };
        encoded_request(&asked)["thinking"]["budget_tokens"].as_u64()
    };
    assert_eq!(budget(ThinkingLevel::Off, 32_000), None);
    assert_eq!(budget(ThinkingLevel::Low, 32_000), Some(2_048));
    assert_eq!(budget(ThinkingLevel::Medium, 32_000), Some(8_192));
    assert_eq!(budget(ThinkingLevel::High, 40_000), Some(16_384));
    assert_eq!(budget(ThinkingLevel::High, 8_000), Some(4_000));
    assert_eq!(budget(ThinkingLevel::High, 1_025), Some(1_024));
    assert_eq!(budget(ThinkingLevel::High, 1_024), None);
}

#[test]
fn a_13_temperature_is_named_without_thinking_alone() {
    let warm = |thinking, model: &str| {
        let messages = vec![user("a")];
        let asked = ModelRequest { thinking, temperature: Some(0.7), ..request(model, messages) };
        encoded_request(&asked).get("temperature").cloned()
    };
    assert_eq!(warm(ThinkingLevel::Off, MODEL), Some(json!(0.7)));
    assert_eq!(warm(ThinkingLevel::Low, MODEL), None);
    assert_eq!(warm(ThinkingLevel::Off, "claude-opus-4-7"), None);
}

#[test]
fn a_14_a_turn_that_began_without_thinking_is_finished_without() {
    let looped = |first: Vec<ChatBlock>| {
        let messages = vec![
            user("a"),
            assistant(first),
            result("1", "one"),
            assistant(vec![call("2", "read", json!({}))]),
            result("2", "two"),
        ];
        encoded_request(&thinking(messages))
    };
    let signed = looped(vec![thinking_block("hm", Some("c2ln")), call("1", "read", json!({}))]);
    assert_eq!(signed["thinking"]["type"], "enabled");
    let unsigned = looped(vec![thinking_block("hm", None), call("1", "read", json!({}))]);
    assert_eq!(unsigned.get("thinking"), None);
    assert_eq!(outline(&unsigned)[1], "assistant: tool_use");
    let silent = looped(vec![call("1", "read", json!({}))]);
    assert_eq!(silent.get("thinking"), None);
}

#[test]
fn a_15_signed_thinking_is_sent_back_as_it_came() {
    let text = " exactly\r\n\u{200b}this \"text\" 思考\n";
    let hidden = ChatBlock::Thinking {
        thinking: String::new(),
        thinking_signature: Some("b3BhcXVl".into()),
        redacted: true,
    };
    let messages = vec![
        user("a"),
        assistant(vec![
            thinking_block(text, Some("c2ln+/=")),
            hidden,
            call("1", "read", json!({})),
        ]),
        result("1", "one"),
    ];
    let body = encoded_request(&thinking(messages));
    let blocks = &body["messages"][1]["content"];
    assert_eq!(blocks[0], json!({ "type": "thinking", "thinking": text, "signature": "c2ln+/=" }));
    assert_eq!(blocks[1], json!({ "type": "redacted_thinking", "data": "b3BhcXVl" }));
}

#[test]
fn a_16_thinking_without_a_signature_or_of_another_dialect_is_left_out() {
    let messages = vec![
        user("a"),
        assistant(vec![
            thinking_block("mine", None),
            thinking_block("mine", Some("")),
            ChatBlock::text("b"),
        ]),
        assistant_message(
            "openai-responses",
            "gpt-5",
            vec![thinking_block("theirs", Some("sig")), ChatBlock::text("c")],
        ),
        user("d"),
    ];
    assert_eq!(outline(&encoded(messages))[1], "assistant: text text");
}

#[test]
fn a_17_thinking_of_older_turns_stays() {
    let messages = vec![
        user("a"),
        assistant(vec![thinking_block("old", Some("c2ln")), ChatBlock::text("b")]),
        user("c"),
    ];
    assert_eq!(outline(&encoded(messages))[1], "assistant: thinking text");
}

#[test]
fn thinking_at_the_end_of_a_message_is_left_out() {
    let messages = vec![user("a"), assistant(vec![thinking_block("cut", Some("c2ln"))]), user("b")];
    assert_eq!(outline(&encoded(messages)), ["user: text text"]);
}

#[test]
fn a_18_a_schema_is_a_plain_object() {
    let schema = json!({
        "anyOf": [
            { "type": "object", "properties": { "a": {} }, "required": ["a"] },
            { "type": "object", "properties": { "b": {} }, "required": ["b"] },
        ],
    });
    let tools = vec![tool("either", schema.clone()), tool("either", schema)];
    let asked = ModelRequest { tools, ..request(MODEL, vec![user("a")]) };
    let body = encoded_request(&asked);
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
    assert_eq!(body["tools"][0]["input_schema"]["properties"], json!({ "a": {}, "b": {} }));
}

#[test]
fn a_19_excess_and_oversized_images_become_text() {
    let content = (0..105).map(|_| image()).collect();
    let large = ChatBlock::Image { data: "A".repeat(5 << 20 | 1), mime_type: "image/png".into() };
    let vector = ChatBlock::Image { data: "QQ==".into(), mime_type: "image/svg+xml".into() };
    let many = ChatMessage::User(crate::message::UserMessage { content, timestamp: 0 });
    let messages = vec![
        many,
        assistant(vec![call("1", "read", json!({}))]),
        result_of("1", vec![large, vector], false),
    ];
    let body = encoded(messages);
    let types = outline(&body)[0].matches("image").count();
    assert_eq!(types, 100);
    assert!(outline(&body)[0].starts_with("user: text text text text text image"));
    assert_eq!(body["messages"][2]["content"][0]["content"][1]["type"], "text");
}

#[test]
fn a_20_items_that_only_this_dialect_knows_are_sent_back_as_they_came() {
    let item =
        json!({ "type": "compaction", "content": "so far", "signature": "c2ln", "z": 1, "a": 2 });
    let own = ChatBlock::ProviderItem { api: API.into(), item: item.clone() };
    let foreign = ChatBlock::ProviderItem { api: "openai-responses".into(), item: json!({}) };
    let messages = vec![user("a"), assistant(vec![own, foreign, ChatBlock::text("b")]), user("c")];
    let body = Anthropic::default().encode(&request(MODEL, messages));
    assert_eq!(body["messages"][1]["content"][0].to_string(), item.to_string());
    assert_eq!(outline(&body)[1], "assistant: compaction text");
}
