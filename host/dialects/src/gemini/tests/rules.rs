//! Each rule by its number.

use serde_json::json;

use super::*;
use crate::conversations::{
    assistant_message, call, image, request, result, result_of, thinking_block, tool,
};
use crate::message::{ChatBlock, ToolCallBlock};

fn user(text: &str) -> ChatMessage {
    ChatMessage::from_user_text(text)
}

fn assistant(model: &str, content: Vec<ChatBlock>) -> ChatMessage {
    assistant_message(API, model, content)
}

fn read(id: &str) -> ChatBlock {
    call(id, "read", json!({ "path": "p" }))
}

fn signed(id: &str, signature: &str) -> ChatBlock {
    let arguments = json!({});
    let thought_signature = Some(signature.to_owned());
    ChatBlock::ToolCall(ToolCallBlock {
        id: id.into(),
        name: "read".into(),
        arguments,
        thought_signature,
    })
}

/// Roles and the kinds of the parts.
fn outline(contents: &Value) -> Vec<String> {
    let kinds = ["text", "inlineData", "functionCall", "functionResponse"];
    let kind = |part: &Value| *kinds.iter().find(|kind| part.get(kind).is_some()).unwrap();
    let outline = |content: &Value| {
        let parts: Vec<_> = content["parts"].as_array().unwrap().iter().map(kind).collect();
        format!("{}: {}", content["role"].as_str().unwrap(), parts.join(" "))
    };
    contents.as_array().unwrap().iter().map(outline).collect()
}

#[test]
fn g_01_nothing_empty_is_sent() {
    let messages = vec![
        user("a"),
        assistant(SECOND, vec![ChatBlock::text(" ")]),
        user("\n"),
        assistant(SECOND, vec![thinking_block("unsigned", None), ChatBlock::text("b")]),
        user("c"),
    ];
    let contents = encoded(SECOND, messages);
    assert_eq!(outline(&contents), ["user: text", "model: text", "user: text"]);
}

#[test]
fn g_02_the_first_turn_is_of_the_user() {
    let contents = encoded(SECOND, vec![assistant(SECOND, vec![read("1")]), result("1", "one")]);
    assert_eq!(contents[0]["parts"][0]["text"], "(session bootstrap)");
    let orphaned = encoded(SECOND, vec![result("1", "one"), user("a")]);
    assert_eq!(outline(&orphaned), ["user: text"]);
    assert_eq!(outline(&encoded(SECOND, Vec::new())), ["user: text"]);
    let open = encoded(SECOND, vec![user("a"), assistant(SECOND, vec![ChatBlock::text("b")])]);
    assert_eq!(outline(&open), ["user: text", "model: text", "user: text"]);
}

#[test]
fn g_03_calls_come_right_after_the_user_or_a_response() {
    let messages = vec![
        user("a"),
        assistant(SECOND, vec![ChatBlock::text("b")]),
        assistant(SECOND, vec![read("1")]),
        result("1", "one"),
        assistant(SECOND, vec![read("2")]),
        result("2", "two"),
    ];
    let expected = [
        "user: text",
        "model: text functionCall",
        "user: functionResponse",
        "model: functionCall",
        "user: functionResponse",
    ];
    assert_eq!(outline(&encoded(SECOND, messages)), expected);
}

#[test]
fn g_04_responses_come_right_after_their_calls() {
    let messages =
        vec![user("a"), assistant(SECOND, vec![read("1")]), user("wait"), result("1", "one")];
    let expected = ["user: text", "model: functionCall", "user: functionResponse", "user: text"];
    assert_eq!(outline(&encoded(SECOND, messages)), expected);
}

#[test]
fn g_05_as_many_responses_as_calls() {
    let messages = vec![
        user("a"),
        assistant(SECOND, vec![read("1"), read("2")]),
        result("1", "one"),
        result("1", "again"),
    ];
    let contents = encoded(SECOND, messages);
    assert_eq!(outline(&contents)[2], "user: functionResponse functionResponse");
    let lost = &contents[2]["parts"][1]["functionResponse"]["response"];
    assert_eq!(lost, &json!({ "error": "no result was recorded for this call" }));
}

#[test]
fn g_06_responses_have_the_order_the_names_and_the_ids_of_their_calls() {
    let messages = vec![
        user("a"),
        assistant(SECOND, vec![read("1"), call("2", "mcp:list", json!({}))]),
        result("2", "two"),
        result("1", "one"),
    ];
    let contents = encoded(SECOND, messages);
    let response = |place: usize| contents[2]["parts"][place]["functionResponse"].clone();
    let one = json!({ "id": "1", "name": "read", "response": { "output": "one" } });
    let two = json!({ "id": "2", "name": "mcp_list", "response": { "output": "two" } });
    assert_eq!((response(0), response(1)), (one, two));
}

#[test]
fn g_06_an_id_of_our_own_is_sent_only_where_there_must_be_one() {
    let messages = |model: &str| {
        vec![
            user("a"),
            assistant(model, vec![read("ctxhost_call_00_0")]),
            result("ctxhost_call_00_0", "b"),
        ]
    };
    let second = encoded(SECOND, messages(SECOND));
    assert_eq!(second[1]["parts"][0]["functionCall"].get("id"), None);
    assert_eq!(second[2]["parts"][0]["functionResponse"].get("id"), None);
    let third = encoded(THIRD, messages(THIRD));
    assert_eq!(third[1]["parts"][0]["functionCall"]["id"], "ctxhost_call_00_0");
}

#[test]
fn g_07_the_first_call_of_each_step_of_this_turn_is_signed() {
    let messages = |model: &str| {
        vec![
            user("old"),
            assistant(model, vec![read("0")]),
            result("0", "zero"),
            user("new"),
            assistant(model, vec![signed("1", "QUJD"), read("2")]),
            result("1", "one"),
            result("2", "two"),
            assistant(model, vec![read("3"), read("4")]),
            result("3", "three"),
            result_of("4", vec![image()], false),
        ]
    };
    let signatures = |contents: &Value| {
        let parts =
            contents.as_array().unwrap().iter().flat_map(|turn| turn["parts"].as_array().unwrap());
        let calls = parts.filter(|part| part.get("functionCall").is_some());
        calls
            .map(|part| part["thoughtSignature"].as_str().unwrap_or("-").to_owned())
            .collect::<Vec<_>>()
    };
    let stand_in = "skip_thought_signature_validator";
    let third = encoded(THIRD, messages(THIRD));
    assert_eq!(signatures(&third), ["-", "QUJD", "-", stand_in, "-"]);
    let second = encoded(SECOND, messages(SECOND));
    assert_eq!(signatures(&second), ["-", "QUJD", "-", "-", "-"]);
}

#[test]
fn g_08_signatures_are_of_this_model_and_base64() {
    let signature = |model: &str, signature: &str| {
        let text_signature = Some(signature.to_owned());
        let text = ChatBlock::Text { text: "b".into(), text_signature };
        let messages = vec![user("a"), assistant(model, vec![text]), user("c")];
        encoded(THIRD, messages)[1]["parts"][0].get("thoughtSignature").cloned()
    };
    assert_eq!(signature(THIRD, "QUJDRA=="), Some(json!("QUJDRA==")));
    assert_eq!(signature("gemini-3-pro-preview-11-2025", "QUJD"), Some(json!("QUJD")));
    assert_eq!(signature("gemini-3-pro", "QUJD"), None);
    assert_eq!(signature(SECOND, "QUJD"), None);
    assert_eq!(signature(THIRD, "QUJ"), None);
    assert_eq!(signature(THIRD, "Q JD"), None);
}

#[test]
fn g_08_parts_with_signatures_stay_alone() {
    let empty = ChatBlock::Text { text: String::new(), text_signature: Some("QUJD".into()) };
    let thought = thinking_block("hm", Some("QUJD"));
    let messages =
        vec![user("a"), assistant(THIRD, vec![thought, ChatBlock::text("b"), empty]), user("c")];
    let parts = json!([
        { "text": "hm", "thought": true, "thoughtSignature": "QUJD" },
        { "text": "b" },
        { "text": "", "thoughtSignature": "QUJD" },
    ]);
    assert_eq!(encoded(THIRD, messages)[1]["parts"], parts);
}

#[test]
fn g_09_arguments_and_responses_are_objects() {
    let messages = vec![
        user("a"),
        assistant(SECOND, vec![call("1", "read", json!("p")), call("2", "read", Value::Null)]),
        result_of("1", vec![ChatBlock::text("no"), ChatBlock::text("way")], true),
        result_of("2", Vec::new(), false),
    ];
    let contents = encoded(SECOND, messages);
    let calls = &contents[1]["parts"];
    assert_eq!(calls[0]["functionCall"]["args"], json!({ "input": "p" }));
    assert_eq!(calls[1]["functionCall"]["args"], json!({}));
    let responses = &contents[2]["parts"];
    assert_eq!(responses[0]["functionResponse"]["response"], json!({ "error": "no\nway" }));
    assert_eq!(responses[1]["functionResponse"]["response"], json!({ "output": "" }));
}

#[test]
fn g_10_schemas_have_only_known_keywords() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": { "path": { "type": ["string", "null"], "format": "path" } },
        "additionalProperties": false,
    });
    let tools = vec![tool("read", schema), tool("now", json!({ "type": "object" }))];
    let asked = ModelRequest { tools, ..request(SECOND, vec![user("a")]) };
    let expected = json!([{ "functionDeclarations": [
        {
            "name": "read",
            "description": "Does it.",
            "parameters": {
                "type": "OBJECT",
                "properties": { "path": { "type": "STRING", "nullable": true } },
            },
        },
        { "name": "now", "description": "Does it." },
    ] }]);
    assert_eq!(encoded_request(&asked)["tools"], expected);
}

#[test]
fn g_12_images_stand_in_responses_of_the_third_generation_alone() {
    let messages = |model: &str| {
        vec![
            user("a"),
            assistant(model, vec![read("1"), read("2")]),
            result_of("1", vec![ChatBlock::text("see"), image()], false),
            result("2", "two"),
            user("b"),
        ]
    };
    let second = encoded(SECOND, messages(SECOND));
    let expected = [
        "user: text",
        "model: functionCall functionCall",
        "user: functionResponse functionResponse",
        "user: inlineData text",
    ];
    assert_eq!(outline(&second), expected);
    let third = encoded(THIRD, messages(THIRD));
    assert_eq!(outline(&third)[3], "user: text");
    let image = &third[2]["parts"][0]["functionResponse"]["parts"][0]["inlineData"];
    assert_eq!(image, &json!({ "mimeType": "image/png", "data": "iVBORw0KGgo=" }));
}

#[test]
fn an_unsupported_image_becomes_text() {
    let moving = ChatBlock::Image { data: "QQ==".into(), mime_type: "image/gif".into() };
    let messages =
        vec![user("a"), assistant(THIRD, vec![read("1")]), result_of("1", vec![moving], false)];
    let response = encoded(THIRD, messages)[2]["parts"][0]["functionResponse"]["response"].take();
    assert_eq!(response, json!({ "output": "[image/gif left out: it cannot be shown]" }));
}
