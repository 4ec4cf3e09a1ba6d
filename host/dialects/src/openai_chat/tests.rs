//! The rules of chat completions, each by its number.

use ctxhost_engine_api::ToolSpec;
use serde_json::json;

use super::*;
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};
use crate::request::ThinkingLevel;

mod client_messages;
mod decoding;
mod rules;

fn messages(written: Value) -> Vec<ChatMessage> {
    serde_json::from_value(written).unwrap()
}

fn request(written: Value) -> ModelRequest {
    let messages = messages(written);
    ModelRequest { model: "m".into(), messages, max_output_tokens: 500, ..Default::default() }
}

fn call(id: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "a"}})
}

fn calls(ids: &[&str]) -> Value {
    json!({"role": "assistant", "content": ids.iter().map(|id| call(id)).collect::<Vec<_>>()})
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": content})
}

fn pixel() -> Value {
    json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})
}

fn body_of(request: &ModelRequest, settings: CompatSettings) -> Value {
    let body = OpenAiChat::new(Compat::new(&settings, "http://x/v1")).encode(request);
    assert_eq!(rules::broken(&body), Vec::<String>::new());
    body
}

fn sent(written: Value) -> Value {
    body_of(&request(written), CompatSettings::default())["messages"].take()
}

#[test]
fn o_1_images_of_results_wait_until_all_results_stand() {
    let text_and_image = json!([{"type": "text", "text": "seen"}, pixel()]);
    let sent = sent(json!([
        {"role": "user", "content": "look"},
        calls(&["a", "b"]),
        result("a", text_and_image),
        result("b", json!([pixel()])),
        {"role": "assistant", "content": "two pictures"},
    ]));
    let roles: Vec<_> =
        sent.as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "assistant"]);
    assert_eq!(sent[2]["content"], "seen");
    assert_eq!(sent[3]["content"], "(see the image below)");
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let expected = json!([
        {"type": "text", "text": "Images from read (a):"}, image,
        {"type": "text", "text": "Images from read (b):"}, image,
    ]);
    assert_eq!(sent[4]["content"], expected);
}

#[test]
fn o_2_and_o_3_results_carry_the_ids_of_their_calls() {
    let long = "call_".to_owned() + &"x".repeat(60);
    let sent = sent(json!([
        {"role": "user", "content": "go"},
        calls(&[&long, "call|fc_1"]),
        result(&long, json!("one")),
        result("call|fc_1", json!("two")),
    ]));
    let ids: Vec<_> = (0..2).map(|at| sent[1]["tool_calls"][at]["id"].clone()).collect();
    assert_eq!([&sent[2]["tool_call_id"], &sent[3]["tool_call_id"]], [&ids[0], &ids[1]]);
    assert_eq!(ids[1], "callfc1");
}

#[test]
fn o_4_an_assistant_message_has_content_or_calls() {
    let sent = sent(json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I read"}, call("a"), {"type": "text", "text": "and write"}]},
        result("a", json!("")),
        calls(&["b"]),
        result("b", json!("ok")),
    ]));
    assert_eq!(sent.as_array().unwrap().len(), 5);
    assert_eq!(sent[1]["content"], "I read\nand write");
    assert_eq!(sent[2]["content"], "(no output)");
    assert_eq!(sent[3]["content"], Value::Null);
    assert_eq!(sent[3].get("reasoning_content"), None);
}

#[test]
fn o_5_arguments_are_the_text_of_an_object() {
    let with = |arguments: Value| {
        let call = json!({"type": "toolCall", "id": "a", "name": "read", "arguments": arguments});
        let sent = sent(json!([{"role": "user", "content": "go"},
            {"role": "assistant", "content": [call]}, result("a", json!("ok"))]));
        sent[1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned()
    };
    assert_eq!(with(json!({"b": 1, "a": "ä"})), r#"{"b":1,"a":"ä"}"#);
    assert_eq!(with(json!("half {")), r#"{"input":"half {"}"#);
    assert_eq!(with(Value::Null), "{}");
}

#[test]
fn o_6_tools_are_a_list_with_something_in_it_or_none() {
    let history = json!([{"role": "user", "content": "go"}, calls(&["a", "b"]),
        result("a", json!("1")), result("b", json!("2"))]);
    let mut request = request(history);
    let none = body_of(&request, CompatSettings::default());
    assert_eq!((none.get("tools"), none.get("tool_choice")), (None, None));
    let settings = CompatSettings { tools_with_history: Some(true), ..Default::default() };
    let body = body_of(&request, settings.clone());
    assert_eq!(body["tools"][0]["function"]["name"], "read");
    assert_eq!(
        (body["tools"].as_array().unwrap().len(), &body["tool_choice"]),
        (1, &json!("none"))
    );
    let schema = json!({"type": "object", "properties": {}});
    request.tools = vec![ToolSpec {
        name: "write".into(),
        description: "writes".into(),
        input_schema: schema.clone(),
    }];
    let body = body_of(&request, settings);
    let function = json!({"name": "write", "description": "writes", "parameters": schema});
    assert_eq!(body["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(body.get("tool_choice"), None);
}

#[test]
fn o_7_somebody_speaks() {
    let none = sent(json!([]));
    assert_eq!(none, json!([{"role": "user", "content": "Go on."}]));
    let assistant = sent(json!([{"role": "assistant", "content": "hello"}]));
    assert_eq!(assistant[0]["role"], "user");
}

#[test]
fn o_8_system_and_results_are_text() {
    let mut request = request(
        json!([{"role": "user", "content": [{"type": "text", "text": "what is"}, pixel()]}]),
    );
    request.system = "be brief".into();
    let body = body_of(&request, CompatSettings::default());
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "be brief"}));
    assert_eq!(body["messages"][1]["content"][1]["type"], "image_url");
    let settings = CompatSettings { developer_role: Some(true), ..Default::default() };
    assert_eq!(body_of(&request, settings)["messages"][0]["role"], "developer");
}

#[test]
fn o_9_ids_are_short_and_the_same_at_every_request() {
    let long = "toolu_".to_owned() + &"y".repeat(90);
    let first =
        json!([{"role": "user", "content": "go"}, calls(&[&long]), result(&long, json!("1"))]);
    let mut longer = first.clone();
    longer.as_array_mut().unwrap().push(json!({"role": "user", "content": "on"}));
    let (first, longer) = (sent(first), sent(longer));
    assert_eq!(first.as_array().unwrap()[..], longer.as_array().unwrap()[..3]);
    assert!(first[2]["tool_call_id"].as_str().unwrap().len() <= 40);
}

#[test]
fn o_10_models_that_reason_get_no_max_tokens_and_no_temperature() {
    let check = |model: &str,
                 settings: CompatSettings,
                 thinking,
                 field: &str,
                 temperature: Value| {
        let mut request = request(json!([{"role": "user", "content": "go"}]));
        request.model = model.to_owned();
        request.thinking = thinking;
        request.temperature = Some(0.2);
        let body = body_of(&request, settings);
        let limits =
            ["max_tokens", "max_completion_tokens"].map(|name| (name, body.get(name).is_some()));
        assert_eq!(
            limits.map(|(name, is_present)| is_present == (name == field)),
            [true, true],
            "{model}: {body}"
        );
        assert_eq!(body.get("temperature").cloned().unwrap_or_default(), temperature, "{model}");
        body
    };
    let auto = CompatSettings::default;
    check("llama", auto(), ThinkingLevel::Off, "max_tokens", json!(0.2));
    check("gpt-4.1", auto(), ThinkingLevel::Off, "max_tokens", json!(0.2));
    check("o3-mini", auto(), ThinkingLevel::Off, "max_completion_tokens", Value::Null);
    check("openai/gpt-5.2", auto(), ThinkingLevel::Off, "max_completion_tokens", Value::Null);
    let body = check("llama", auto(), ThinkingLevel::High, "max_tokens", Value::Null);
    assert_eq!(body["reasoning_effort"], "high");
    let set = CompatSettings { max_tokens_field: Some(MaxTokensField::MaxTokens), ..auto() };
    check("o3", set, ThinkingLevel::Off, "max_tokens", Value::Null);
}

#[test]
fn o_11_more_than_the_window_is_never_asked_for() {
    let mut request = request(json!([{"role": "user", "content": "go"}]));
    let limit =
        |request: &ModelRequest| body_of(request, CompatSettings::default())["max_tokens"].clone();
    request.window_tokens = 300;
    assert_eq!(limit(&request), 300);
    request.window_tokens = 0;
    assert_eq!(limit(&request), 500);
    request.max_output_tokens = 0;
    assert_eq!(limit(&request), Value::Null);
}

#[test]
fn mistral_gets_what_it_wants() {
    let mistral = Compat::new(&CompatSettings::default(), "https://api.mistral.ai/v1");
    let mut request = request(json!([
        {"role": "user", "content": "look"},
        calls(&["call_1"]),
        result("call_1", json!([pixel()])),
    ]));
    request.thinking = ThinkingLevel::Low;
    request.cache_key = "session".into();
    let body = OpenAiChat::new(mistral).encode(&request);
    assert_eq!(rules::broken(&body), Vec::<String>::new());
    for field in ["stream_options", "store", "reasoning_effort", "prompt_cache_key"] {
        assert_eq!(body.get(field), None, "{field}");
    }
    let roles: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    let tool = &body["messages"][2];
    assert_eq!((&tool["name"], tool["tool_call_id"].as_str().unwrap().len()), (&json!("read"), 9));
    assert_eq!(tool["tool_call_id"], body["messages"][1]["tool_calls"][0]["id"]);
}

#[test]
fn openai_gets_what_it_wants() {
    let openai = Compat::new(&CompatSettings::default(), "https://api.openai.com/v1");
    let mut request = request(json!([{"role": "user", "content": "go"}]));
    request.cache_key = "k".repeat(100);
    let body = OpenAiChat::new(openai).encode(&request);
    assert_eq!(body["max_completion_tokens"], 500);
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["prompt_cache_key"].as_str().unwrap().len(), 64);
    let own = CompatSettings { store: Some(false), ..Default::default() };
    let own = Compat::new(&own, "https://api.openai.com/v1");
    assert_eq!(OpenAiChat::new(own).encode(&request).get("store"), None);
}

#[test]
fn thinking_goes_back_where_it_is_wanted() {
    let thought = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, call("a")]});
    let request =
        request(json!([{"role": "user", "content": "go"}, thought, result("a", json!("1")),
        calls(&["b"]), result("b", json!("2")), {"role": "assistant", "content": "done"}]));
    let deepseek = Compat::new(&CompatSettings::default(), "https://api.deepseek.com");
    let body = OpenAiChat::new(deepseek).encode(&request);
    let thoughts = [1, 3, 5].map(|at| body["messages"][at].get("reasoning_content").cloned());
    assert_eq!(thoughts, [Some(json!("hm")), Some(json!("")), None]);
}
