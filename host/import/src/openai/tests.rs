//! OpenAI messages: each role, each kind of call, each form of the file.

use serde_json::{Value, json};

use super::super::tests::{OPENAI, messages, roles, texts};
use super::super::{ImportFormat, ImportedTranscript, detect, import_messages};

fn of(messages: Value) -> ImportedTranscript {
    import_messages(ImportFormat::OpenAi, messages.to_string().as_bytes()).unwrap()
}

#[test]
fn a_request_body() {
    let imported = import_messages(ImportFormat::OpenAi, OPENAI.as_bytes()).unwrap();
    assert_eq!(imported.model, Some(("openai".into(), "gpt-x".into())));
    let reply = json!({ "api": "openai-completions", "provider": "openai", "model": "gpt-x" });
    let expected = json!([
        { "role": "system", "content": "be brief",
          "toolsAdded": [{ "name": "ls", "description": "", "parameters": { "type": "object" } }],
          "timestamp": 0 },
        { "role": "user", "content": [
              { "type": "text", "text": "list it" },
              { "type": "image", "data": "AAAA", "mimeType": "image/png" },
          ], "timestamp": 1000 },
        { "role": "assistant", "content": [
              { "type": "thinking", "thinking": "think" },
              { "type": "toolCall", "id": "c1", "name": "ls", "arguments": { "path": "a" } },
          ],
          "api": reply["api"], "provider": reply["provider"], "model": reply["model"],
          "stopReason": "toolUse", "timestamp": 2000 },
        { "role": "toolResult", "toolCallId": "c1", "toolName": "ls",
          "content": [{ "type": "text", "text": "a b" }], "isError": false, "timestamp": 3000 },
        { "role": "assistant", "content": [{ "type": "text", "text": "two files" }],
          "api": reply["api"], "provider": reply["provider"], "model": reply["model"],
          "stopReason": "stop", "timestamp": 4000 },
    ]);
    assert_eq!(Value::from(messages(&imported)), expected);
}

#[test]
fn tools_without_a_prompt_get_a_system_message() {
    let body = json!({ "tools": [{ "type": "function", "function": { "name": "ls", "parameters": {} } }],
                       "messages": [{ "role": "user", "content": "a" }] });
    let imported = of(body);
    assert_eq!(roles(&imported), "system user");
    assert_eq!(imported.messages[0].message["toolsAdded"][0]["name"], "ls");
    assert_eq!(imported.messages[0].timestamp_ms, 0);
}

#[test]
fn lists_and_lines_read_alike() {
    let turns =
        [json!({ "role": "user", "content": "a" }), json!({ "role": "assistant", "content": "b" })];
    let lines = format!("{}\n\n{}", turns[0], turns[1]);
    assert_eq!(import_messages(ImportFormat::OpenAi, lines.as_bytes()).unwrap(), of(json!(turns)));
}

#[test]
fn each_result_of_a_repeated_id_has_the_tool_of_its_call() {
    let call = |id: &str, name: &str| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "{}" });
    let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let user = json!({ "role": "user", "content": "go" });
    let imported = of(json!([
        user,
        call("a", "ls"),
        call("b", "cat"),
        call("a", "rm"),
        result("a"),
        result("b"),
        result("a"),
        result("a"),
        call("a", "cp"),
        result("a"),
    ]));
    let tools = imported.messages.iter().filter_map(|imported| imported.message.get("toolName"));
    let tools: Vec<_> = tools.collect();
    assert_eq!(tools, ["ls", "cat", "rm", "rm", "cp"]);
}

#[test]
fn calls_of_every_kind() {
    let calls = [
        (
            json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "" } }),
            json!({}),
        ),
        (json!({ "id": "c", "function": { "name": "f" } }), json!({})),
        (
            json!({ "id": "c", "function": { "name": "f", "arguments": { "a": 1 } } }),
            json!({ "a": 1 }),
        ),
        (
            json!({ "id": "c", "function": { "name": "f", "arguments": "{broken" } }),
            json!({ "input": "{broken" }),
        ),
        (
            json!({ "id": "c", "type": "custom", "custom": { "name": "f", "input": "free" } }),
            json!({ "input": "free" }),
        ),
    ];
    for (written, arguments) in calls {
        let imported = of(json!([{ "role": "assistant", "content": "", "tool_calls": [written] }]));
        let call = json!({ "type": "toolCall", "id": "c", "name": "f", "arguments": arguments });
        assert_eq!(imported.messages[0].message["content"], json!([call]));
    }
}

#[test]
fn calls_of_the_oldest_kind_are_paired_by_their_place() {
    let call = |path: &str| {
        json!({ "role": "assistant", "content": null, "function_call": {
        "name": "read", "arguments": format!("{{\"path\":\"{path}\"}}") } })
    };
    let result = json!({ "role": "function", "name": "read", "content": "r" });
    let imported =
        of(json!([{ "role": "user", "content": "u" }, call("a"), result, call("b"), result]));
    assert_eq!(roles(&imported), "user assistant toolResult assistant toolResult");
    let messages = messages(&imported);
    for place in [1, 3] {
        assert_eq!(messages[place]["content"][0]["id"], messages[place + 1]["toolCallId"]);
        assert_eq!(messages[place + 1]["toolName"], "read");
    }
    assert_ne!(messages[2]["toolCallId"], messages[4]["toolCallId"]);
}

#[test]
fn parts_and_refusals() {
    let audio = json!({ "type": "input_audio", "input_audio": { "data": "A" } });
    let imported = of(json!([
        { "role": "user", "content": [audio, { "type": "image_url", "image_url": "https://a.example" }] },
        { "role": "assistant", "content": null, "refusal": "no" },
        { "role": "system", "content": [{ "type": "text", "text": "late" }] },
    ]));
    assert_eq!(messages(&imported)[0]["content"][0], audio);
    assert_eq!(texts(&imported), ["[image: https://a.example]", "no", "late"]);
    assert_eq!(roles(&imported), "user assistant system");
}

#[test]
fn a_result_without_its_call_keeps_the_name_it_was_given() {
    let imported =
        of(json!([{ "role": "tool", "tool_call_id": "c", "name": "ls", "content": "" }]));
    assert_eq!(messages(&imported)[0]["toolName"], "ls");
    assert_eq!(messages(&imported)[0]["content"], json!([{ "type": "text", "text": "" }]));
}

#[test]
fn what_is_wrong_is_noted_with_its_line() {
    let text = "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"tool\",\"content\":\"lost\"}\n\
                {\"role\":\"robot\"}\n{\"role\":\"assistant\",\"content\":null}\n{\"role\":\n";
    let imported = import_messages(ImportFormat::OpenAi, text.as_bytes()).unwrap();
    let lines: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
    assert_eq!((roles(&imported).as_str(), lines), ("user", vec![2, 3, 4, 5]));
}

#[test]
fn items_of_the_responses_api() {
    let items = json!([
        { "role": "user", "content": "list it" },
        { "type": "reasoning", "id": "r1", "summary": [{ "type": "summary_text", "text": "think" }] },
        { "type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"path\":\"a\"}" },
        { "type": "function_call_output", "call_id": "c1", "output": "a b" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "two files" }] },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "and now?" }] },
    ]);
    let body = json!({ "model": "gpt-x", "instructions": "be brief", "input": items });
    let lines: Vec<String> = items.as_array().unwrap().iter().map(Value::to_string).collect();
    for (written, head) in
        [(items.to_string(), ""), (lines.join("\n"), ""), (body.to_string(), "system ")]
    {
        assert_eq!(detect(written.as_bytes()), Ok(ImportFormat::OpenAi), "{written}");
        let imported = import_messages(ImportFormat::OpenAi, written.as_bytes()).unwrap();
        assert_eq!(imported.problems, []);
        assert_eq!(roles(&imported), format!("{head}user assistant toolResult assistant user"));
        let messages = messages(&imported);
        let reply = &messages[messages.len() - 4];
        let kinds: Vec<&str> = reply["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            (kinds, &reply["api"]),
            (vec!["thinking", "toolCall"], &json!("openai-responses"))
        );
        assert_eq!(messages[messages.len() - 3]["toolName"], "ls");
    }
}
