//! Messages of clients and the entries that they become.

use serde_json::{Value, json};

use crate::OpenAiChatInbound;
use crate::inbound::{InboundDialect, ItemEdit, ParseContext, ParsedEntry, json_items};
use crate::message::{AssistantMessage, ChatMessage};

fn answer(message: &Value) -> AssistantMessage {
    let before = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
    let text = message.to_string();
    let mut groups =
        OpenAiChatInbound.parse_items(&mut json_items(&[text.as_str()]), before).unwrap();
    match groups.remove(0).entries.remove(0) {
        ParsedEntry::Message(ChatMessage::Assistant(answer)) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn every_field_of_an_answer_is_in_its_entry() {
    for field in
        ["reasoning", "reasoning_details", "thinking_blocks", "function_call", "refusal", "new"]
    {
        let message =
            json!({ "role": "assistant", "content": "text", field: [{ "marker": "kept" }] });
        let entry = serde_json::to_string(&answer(&message)).unwrap();
        assert!(entry.contains(r#"{"marker":"kept"}"#), "{field}: {entry}");
    }
    let plain = json!({ "role": "assistant", "name": "a", "content": "text", "refusal": null,
        "annotations": [], "tool_calls": [] });
    assert_eq!(answer(&plain).content.len(), 1);
}

#[test]
fn the_input_of_a_custom_tool_is_read_and_replaced() {
    let call =
        json!({ "type": "custom", "id": "c", "custom": { "name": "patch", "input": "long" } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let mut answer = answer(&message);
    let [block] = answer.tool_calls().cloned().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((&*block.name, &block.arguments), ("patch", &json!("long")));
    if let Some(crate::message::ChatBlock::ToolCall(call)) = answer.content.first_mut() {
        call.arguments = "short".into();
    }
    let edit = ItemEdit::ReplaceMessage(ChatMessage::Assistant(answer));
    let edited = OpenAiChatInbound.edit_items(&[&message.to_string()], &[edit]);
    assert_eq!(edited[0]["tool_calls"][0]["custom"], json!({ "name": "patch", "input": "short" }));
}

fn entries(items: &[Value], first: usize) -> Vec<ParsedEntry> {
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (before, new) = texts.split_at(first);
    let tools = |id: &str| match id {
        "function_call.1" => Some("read".to_owned()),
        "function_call.3" => Some("list".to_owned()),
        _ => None,
    };
    let context = ParseContext { is_start: before.is_empty(), items: before, tool_name_of: &tools };
    let groups = OpenAiChatInbound.parse_items(&mut json_items(new), context).unwrap();
    groups.into_iter().flat_map(|group| group.entries).collect()
}

fn legacy_conversation() -> Vec<Value> {
    let call =
        |name: &str| json!({ "name": name, "arguments": format!("{{\"path\":\"{name}\"}}") });
    let answer =
        |name: &str| json!({ "role": "assistant", "content": null, "function_call": call(name) });
    let result = |name: &str| json!({ "role": "function", "name": name, "content": "found" });
    vec![
        json!({ "role": "user", "content": "look" }),
        answer("read"),
        result("read"),
        answer("list"),
        result("list"),
        result("list"),
    ]
}

#[test]
fn a_legacy_call_and_its_result_belong_together() {
    let items = legacy_conversation();
    let all = entries(&items, 0);
    for (answer, name) in [(1, "read"), (3, "list")] {
        let ParsedEntry::Message(ChatMessage::Assistant(message)) = &all[answer] else { panic!() };
        let [call] = message.tool_calls().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((&*call.name, &call.arguments), (name, &json!({ "path": name })));
        let ParsedEntry::Message(ChatMessage::ToolResult(result)) = &all[answer + 1] else {
            panic!()
        };
        assert_eq!((&result.tool_call_id, &*result.tool_name), (&call.id, name));
    }
    assert_eq!(all[5], ParsedEntry::Note("found".into()), "a second result answers nothing");
    // The entries of an item are the same in each request that has it.
    for first in 1..items.len() {
        assert_eq!(entries(&items, first), all[first..], "{first}");
    }
    let mut other = items.clone();
    other[2]["name"] = "list".into();
    assert_eq!(entries(&other, 0)[2], ParsedEntry::Note("found".into()), "another function");
}

#[test]
fn a_legacy_call_is_written_back_in_its_form() {
    let items = legacy_conversation();
    let ParsedEntry::Message(ChatMessage::Assistant(mut answer)) = entries(&items, 0).remove(1)
    else {
        panic!("no answer")
    };
    let id = answer.tool_calls().next().unwrap().id.clone();
    let result = OpenAiChatInbound.missing_result_item(&id, "read", "lost", None).unwrap();
    assert_eq!(result, json!({ "role": "function", "name": "read", "content": "lost" }));
    let edit = |edit| OpenAiChatInbound.edit_items(&[&items[1].to_string()], &[edit]).remove(0);
    let edited = edit(ItemEdit::ReplaceText("".into()));
    assert_eq!(edited, items[1], "content may be null beside a call");
    if let Some(crate::message::ChatBlock::ToolCall(call)) = answer.content.first_mut() {
        call.arguments = json!({ "path": "short" });
    }
    let edited = edit(ItemEdit::ReplaceMessage(ChatMessage::Assistant(answer.clone())));
    let call = json!({ "name": "read", "arguments": "{\"path\":\"short\"}" });
    assert_eq!(edited, json!({ "role": "assistant", "content": null, "function_call": call }));
    answer.content = vec![crate::message::ChatBlock::text("text".to_owned())];
    let edited = edit(ItemEdit::ReplaceMessage(ChatMessage::Assistant(answer)));
    assert_eq!(edited, json!({ "role": "assistant", "content": "text" }));
}
