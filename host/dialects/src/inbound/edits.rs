//! Edits of a plan, applied to the parts of items.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::ChatMessage;

/// What a plan does to one entry of a group.
#[derive(Clone, Debug, PartialEq)]
// Few exist at a time, each used at once.
#[allow(clippy::large_enum_variant)]
pub enum ItemEdit<'a> {
    /// Keeps it.
    Keep,
    /// Replaces its text: calls stay, images and thinking are dropped.
    ReplaceText(Cow<'a, str>),
    /// Replaces the message.
    ReplaceMessage(ChatMessage),
    /// Drops it.
    Drop,
}

/// Applies an edit to the parts of one entry; without an edit they are kept.
pub(crate) fn apply_edit(
    parts: Vec<Value>,
    edit: Option<&ItemEdit<'_>>,
    replace_text: impl FnOnce(Vec<Value>, &str) -> Vec<Value>,
    replace_message: impl FnOnce(Vec<Value>, &ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    match edit {
        None | Some(ItemEdit::Keep) => parts,
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) => replace_text(parts, text),
        Some(ItemEdit::ReplaceMessage(message)) => replace_message(parts, message),
    }
}

/// Edits the parts of a user item. Tool results take the edits in order; the edit after theirs is
/// that of all other parts.
pub(crate) fn edit_user_parts(
    parts: Vec<Value>,
    edits: &[ItemEdit<'_>],
    is_result: impl FnMut(&Value) -> bool,
    edit_result: impl Fn(Value, &ItemEdit<'_>) -> Option<Value>,
    edit_rest: impl FnOnce(Vec<Value>, Option<&ItemEdit<'_>>) -> Vec<Value>,
) -> Vec<Value> {
    let (results, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_result);
    let rest_edit = edits.get(results.len());
    let results = results.into_iter().zip(edits);
    let mut parts: Vec<_> =
        results.filter_map(|(result, edit)| edit_result(result, edit)).collect();
    parts.extend(edit_rest(rest, rest_edit));
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inbound::InboundDialect;
    use crate::message::{AssistantMessage, ChatBlock, ToolCallBlock};
    use crate::openai_chat::OpenAiChatInbound;
    use crate::openai_responses::OpenAiResponsesInbound;

    /// Two calls with the id `a`, of which the second gets other arguments.
    fn edit(dialect: &dyn InboundDialect, items: &[Value]) -> Vec<Value> {
        let call = |name: &str, arguments| {
            ChatBlock::ToolCall(ToolCallBlock::new("a".into(), name.into(), arguments))
        };
        let content = vec![call("read", json!({"n": 1})), call("list", json!({"n": 9}))];
        let answer = AssistantMessage { content, ..AssistantMessage::default() };
        let items: Vec<String> = items.iter().map(Value::to_string).collect();
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        dialect.edit_items(&items, &[ItemEdit::ReplaceMessage(ChatMessage::Assistant(answer))])
    }

    #[test]
    fn calls_with_one_id_are_edited_in_order() {
        let call = |name: &str, arguments: &str| {
            let function = json!({"name": name, "arguments": arguments});
            json!({"id": "a", "type": "function", "function": function})
        };
        let chat = |second: &str| {
            let calls = [call("read", r#"{"n":1}"#), call("list", second)];
            json!({"role": "assistant", "content": null, "tool_calls": calls})
        };
        assert_eq!(edit(&OpenAiChatInbound, &[chat(r#"{"n":2}"#)]), [chat(r#"{"n":9}"#)]);
        let item = |name: &str, arguments: &str| json!({"type": "function_call", "call_id": "a", "name": name, "arguments": arguments});
        let items = |second: &str| [item("read", r#"{"n":1}"#), item("list", second)];
        assert_eq!(edit(&OpenAiResponsesInbound, &items(r#"{"n":2}"#)), items(r#"{"n":9}"#));
    }
}
