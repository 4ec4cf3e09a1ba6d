//! Foreign content, and content that no provider accepts.

use serde_json::json;

use super::*;
use crate::{Anthropic, Dialect, Gemini, ModelRequest, Ollama, OpenAiChat, OpenAiResponses};

fn messages(written: Value) -> Vec<ChatMessage> {
    serde_json::from_value(written).unwrap()
}

/// The messages adapted to model `m` of `here` in `openai-completions`.
fn seen(written: Value) -> Value {
    let messages = messages(written);
    serde_json::to_value(adapt_messages(&messages, "openai-completions", "here", "m")).unwrap()
}

fn assistant(model: &str, content: Value) -> Value {
    json!({"role": "assistant", "api": "openai-completions", "provider": "here", "model": model,
        "content": content})
}

fn result(id: &str) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": "read", "content": "done"})
}

/// The blocks of the first message.
fn blocks(seen: &Value) -> &Value {
    &seen[0]["content"]
}

#[test]
fn a_model_sees_its_own_thinking_and_not_that_of_others() {
    let content = json!([
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
        {"type": "text", "text": "hello", "textSignature": "ts"},
        {"type": "toolCall", "id": "c", "name": "read", "arguments": {}, "thoughtSignature": "t"},
    ]);
    let own = seen(json!([assistant("m", content.clone()), result("c")]));
    assert_eq!(blocks(&own), &content);
    let expected = json!([
        {"type": "text", "text": "hello"},
        {"type": "toolCall", "id": "c", "name": "read", "arguments": {}},
    ]);
    let other = seen(json!([assistant("other", content), result("c")]));
    assert_eq!(blocks(&other), &expected);
}

#[test]
fn items_of_a_provider_stay_with_their_model() {
    let item = |api: &str| json!({"type": "providerItem", "api": api, "item": {"id": "cmp_1"}});
    let content = json!([item("openai-completions"), item("openai-responses")]);
    let own = seen(json!([assistant("m", content.clone())]));
    assert_eq!(blocks(&own), &json!([item("openai-completions")]));
    assert_eq!(seen(json!([assistant("other", content)])), json!([]));
}

#[test]
fn what_is_left_empty_goes() {
    let thinking = json!([{"type": "thinking", "thinking": "hm"}]);
    let blank = json!([{"type": "text", "text": " \n"}]);
    let seen = seen(json!([
        assistant("m", thinking),
        assistant("m", blank),
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "audio"}]},
    ]));
    assert_eq!(seen.as_array().unwrap().len(), 1);
    assert_eq!(blocks(&seen), &json!([{"type": "text", "text": UNKNOWN_BLOCK}]));
}

fn named_call(id: &str, name: &str) -> Value {
    json!({"type": "toolCall", "id": id, "name": name, "arguments": {}})
}

#[test]
fn an_interrupted_call_goes_with_its_result_and_names_are_trimmed() {
    let interrupted = json!({"type": "toolCall", "id": "e", "name": "read"});
    let content = json!([named_call("a", " read "), interrupted]);
    let seen = seen(json!([assistant("m", content), result("a"), result("e")]));
    assert_eq!(blocks(&seen), &json!([named_call("a", "read")]));
    assert_eq!(seen.as_array().unwrap().len(), 2, "{seen}");
    assert_eq!(seen[1]["toolCallId"], "a");
}

#[test]
fn a_call_of_an_illegal_name_is_sent_with_its_result() {
    let long = "n".repeat(200);
    let names = ["functions.shell", "shell<|channel|>json", " ", &long, &long];
    let ids = ["a", "b", "c", "d", "e"];
    let legal = [
        "functions_shell".to_owned(),
        "shell__channel__json".to_owned(),
        "unknown".to_owned(),
        "n".repeat(64),
        "n".repeat(64),
    ];
    for model in ["m", "other"] {
        let content = ids.iter().zip(names).map(|(id, name)| named_call(id, name)).collect();
        let mut all = vec![assistant(model, content)];
        all.extend(ids.iter().zip(names).map(|(id, name)| {
            json!({"role": "toolResult", "toolCallId": id, "toolName": name, "content": id})
        }));
        let seen = seen(Value::from(all));
        let sent: Value = ids.iter().zip(&legal).map(|(id, name)| named_call(id, name)).collect();
        assert_eq!(blocks(&seen), &sent);
        for (at, (id, name)) in ids.iter().zip(&legal).enumerate() {
            let result = &seen[at + 1];
            assert_eq!((&result["toolCallId"], &result["toolName"]), (&json!(id), &json!(name)));
            assert_eq!(result["content"][0]["text"], **id);
        }
    }
}

#[test]
fn calls_without_an_id_get_one() {
    let content = json!([named_call("", "read"), named_call(" ", "read")]);
    let seen = seen(json!([assistant("m", content), result(""), result(" "), result("")]));
    assert_eq!(blocks(&seen), &json!([named_call("call", "read"), named_call("call-2", "read")]));
    let ids: Vec<_> = seen.as_array().unwrap().iter().map(|m| &m["toolCallId"]).collect();
    assert_eq!(ids, [&Value::Null, &json!("call"), &json!("call-2")]);
}

#[test]
fn an_id_that_comes_again_is_another_call() {
    let calls = |ids: &[&str]| {
        let call =
            |id: &&str| json!({"type": "toolCall", "id": id, "name": "read", "arguments": {}});
        assistant("m", ids.iter().map(call).collect())
    };
    let seen = seen(json!([
        calls(&["x", "x"]),
        result("x"),
        result("x"),
        result("x"),
        calls(&["x"]),
        result("x"),
        result("unknown"),
    ]));
    let ids: Vec<_> =
        seen.as_array().unwrap().iter().filter_map(|m| m["toolCallId"].as_str()).collect();
    assert_eq!(ids, ["x", "x-2", "x-3"]);
    assert_eq!(seen[3]["content"][0]["id"], "x-3");
}

#[test]
fn a_call_that_shares_its_id_with_a_neighbour_gets_a_result_of_its_own() {
    let call = || json!({"type": "toolCall", "id": "x", "name": "read", "arguments": {}});
    let seen = seen(json!([
        assistant("m", json!([call(), call()])),
        result("x"),
        {"role": "user", "content": "go on"},
    ]));
    let ids: Vec<_> = seen.as_array().unwrap().iter().map(|m| &m["toolCallId"]).collect();
    assert_eq!(ids, [&Value::Null, &json!("x"), &json!("x-2"), &Value::Null]);
    assert_eq!(seen[2]["content"][0]["text"], PlanItem::MISSING_RESULT);
    assert_eq!((&seen[2]["isError"], &seen[2]["toolName"]), (&json!(true), &json!("read")));
}

#[test]
fn every_dialect_sends_a_call_of_an_illegal_name_with_its_result() {
    let dialects: [&dyn Dialect; 5] =
        [&Anthropic::default(), &Gemini, &Ollama, &OpenAiChat::default(), &OpenAiResponses];
    for dialect in dialects {
        let api = dialect.api();
        let conversation = messages(json!([
            {"role": "user", "content": "list it"},
            {"role": "assistant", "api": api, "provider": "here", "model": "m",
                "content": [named_call("c1", "functions.shell"), named_call("c2", "<shell>")]},
            {"role": "toolResult", "toolCallId": "c1", "toolName": "functions.shell",
                "content": "this tool is unknown", "isError": true},
            {"role": "toolResult", "toolCallId": "c2", "toolName": "<shell>",
                "content": "nor this one", "isError": true},
        ]));
        let request = ModelRequest {
            model: "m".to_owned(),
            messages: adapt_messages(&conversation, api, "here", "m"),
            max_output_tokens: 100,
            ..ModelRequest::default()
        };
        let body = dialect.encode(&request).to_string();
        for part in ["\"functions_shell\"", "\"_shell_\"", "this tool is unknown", "nor this one"] {
            assert!(body.contains(part), "{api}: {part} is missing in {body}");
        }
        assert!(!body.contains("functions.shell") && !body.contains("<shell>"), "{api}: {body}");
    }
}
