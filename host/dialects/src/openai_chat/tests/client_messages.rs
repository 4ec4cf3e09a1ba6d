//! Messages of clients and the entries that they become.

use serde_json::{Value, json};

use crate::OpenAiChatInbound;
use crate::inbound::{InboundDialect, ItemEdit, ParseContext, ParsedEntry, json_items};
use crate::message::{AssistantMessage, ChatMessage};

fn answer(message: &Value) -> AssistantMessage {
    let before =
        ParseContext { is_start: true, item_count: 0, last_item: None, tool_name_of: &|_| None };
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
