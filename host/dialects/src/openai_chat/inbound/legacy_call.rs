//! `function_call`, the one call of an answer before `tool_calls` existed.
//!
//! The session needs an id for it. It is made of the message's position, so that it is the same in every request of a
//! conversation, and it is never sent.

use serde_json::Value;

use crate::inbound::NamedCall;
use crate::json::{parse_or_string, remove, set, take, take_text, text, text_or_json};
use crate::message::{AssistantMessage, ChatBlock, ToolCallBlock};

const FIELD: &str = "function_call";

const ID_START: &str = "function_call.";

/// The call of an answer at this position.
fn named_call(answer: &Value, position: usize) -> Option<NamedCall> {
    let has_tool_calls = answer.get("tool_calls").and_then(Value::as_array);
    if has_tool_calls.is_some_and(|calls| !calls.is_empty()) {
        return None;
    }
    let name = text(answer.get(FIELD)?, "name");
    (!name.is_empty()).then(|| NamedCall { id: id_at(position), name: name.to_owned() })
}

/// Takes the call out of an answer. Without a name, or beside other calls, it stays: no result could be matched to it.
pub(super) fn take_call(answer: &mut Value, position: usize) -> Option<ChatBlock> {
    let NamedCall { id, name } = named_call(answer, position)?;
    let mut call = take(answer, FIELD);
    let arguments = take_text(&mut call, "arguments").unwrap_or_default();
    Some(ChatBlock::ToolCall(ToolCallBlock::new(id, name, parse_or_string(arguments))))
}

/// Gives the call of a message the arguments that it has in `answer`, and removes it if it is not there.
pub(super) fn replace_call(message: &mut Value, answer: &AssistantMessage) {
    let Some(call) = message.get_mut(FIELD).filter(|call| call.is_object()) else { return };
    match answer.tool_calls().find(|call| is_legacy_id(&call.id)) {
        Some(kept) => set(call, "arguments", text_or_json(&kept.arguments)),
        None => {
            remove(message, FIELD);
        }
    }
}

/// Whether an id of the session belongs to such a call.
pub(super) fn is_legacy_id(call_id: &str) -> bool {
    let position = call_id.strip_prefix(ID_START).unwrap_or_default();
    !position.is_empty() && position.bytes().all(|byte| byte.is_ascii_digit())
}

fn id_at(position: usize) -> String {
    format!("{ID_START}{position}")
}
