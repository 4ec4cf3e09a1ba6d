//! Joins messages of one role: the chat templates of many models require that user and assistant alternate.

use serde_json::{Map, Value, json};

use crate::json::{set, take, text};

/// Fields in which providers return the thinking of an answer.
pub(super) const THINKING_FIELDS: [&str; 4] =
    ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"];

/// Fields with output that no other message can hold.
const OUTPUT_FIELDS: [&str; 4] = ["tool_calls", "function_call", "audio", "refusal"];

/// Joins `second` to `first`, or gives `second` back.
///
/// Two user messages of one name become one, and so do two answers of which the first makes no calls; its thinking is
/// dropped. Of other fields, such as ids of the client, lists are joined, else the newer value stays. Other messages may
/// follow one of the same role in every template, or hold what cannot be joined.
pub(super) fn join_messages(first: &mut Value, mut second: Value) -> Option<Value> {
    let is_same = |field: &str| first.get(field) == second.get(field);
    let is_role = matches!(text(first, "role"), "user" | "assistant");
    if !is_role || !is_same("role") || !is_same("name") || has_more_than_content(first) {
        return Some(second);
    }
    let content = join_contents(take(first, "content"), take(&mut second, "content"));
    set(&mut second, "content", content);
    join_fields(take_fields(first), &mut second);
    *first = second;
    None
}

/// Whether a message has calls or other output that belongs to it alone.
fn has_more_than_content(message: &Value) -> bool {
    OUTPUT_FIELDS.iter().any(|field| message.get(*field).is_some_and(|value| !is_empty(value)))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn take_fields(message: &mut Value) -> Map<String, Value> {
    message.as_object_mut().map(std::mem::take).unwrap_or_default()
}

/// Adds the other fields of an earlier message to the one that it is joined to.
fn join_fields(earlier: Map<String, Value>, message: &mut Value) {
    let is_done = |field: &str| field == "content" || THINKING_FIELDS.contains(&field);
    let earlier = earlier.into_iter();
    for (field, value) in earlier.filter(|(field, value)| !is_done(field) && !is_empty(value)) {
        match (value, message.get_mut(&field)) {
            (Value::Array(mut list), Some(Value::Array(newer))) => {
                list.append(newer);
                *newer = list;
            }
            (value, None | Some(Value::Null)) => set(message, &field, value),
            _ => {}
        }
    }
}

/// Strings stay a string: some servers read no parts.
fn join_contents(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Null, second) => second,
        (first, Value::Null) => first,
        (Value::String(mut first), Value::String(second)) => {
            if !first.is_empty() && !second.is_empty() {
                first.push_str("\n\n");
            }
            first.push_str(&second);
            first.into()
        }
        (first, second) => {
            let mut parts = parts_of(first);
            parts.extend(parts_of(second));
            parts.into()
        }
    }
}

fn parts_of(content: Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts,
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        part => vec![part],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(messages: &[Value]) -> Vec<Value> {
        let mut joined: Vec<Value> = Vec::new();
        for message in messages.iter().cloned() {
            let separate = match joined.last_mut() {
                Some(last) => join_messages(last, message),
                None => Some(message),
            };
            joined.extend(separate);
        }
        joined
    }

    fn user(content: impl Into<Value>) -> Value {
        json!({ "role": "user", "content": content.into() })
    }

    #[test]
    fn texts_become_one_text_and_parts_one_list() {
        assert_eq!(joined(&[user("task"), user(""), user("more")]), [user("task\n\nmore")]);
        let (text, image) =
            (json!({ "type": "text", "text": "see" }), json!({ "type": "image_url" }));
        assert_eq!(
            joined(&[user("see"), user(vec![image.clone()]), user("see")]),
            [user(vec![text.clone(), image, text])]
        );
    }

    #[test]
    fn an_answer_of_text_joins_the_next_one_with_its_calls() {
        let plain = json!({ "role": "assistant", "content": "one", "reasoning": "thought",
            "refusal": null, "annotations": [], "tool_calls": [] });
        let calls = json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
        let caller = json!({ "role": "assistant", "content": null, "reasoning": "kept", "tool_calls": calls });
        assert_eq!(
            joined(&[plain, caller]),
            [
                json!({ "role": "assistant", "content": "one", "reasoning": "kept", "tool_calls": calls })
            ]
        );
    }

    #[test]
    fn fields_of_a_client_do_not_keep_messages_apart() {
        let message = |id: &str, images: &[&str]| json!({ "role": "user", "content": id, "id": id, "images": images });
        let first =
            json!({ "role": "user", "content": "a", "id": "a", "images": ["1"], "time": 7 });
        let both = json!({ "role": "user", "content": "a\n\nb", "id": "b", "images": ["1", "2"], "time": 7 });
        assert_eq!(joined(&[first, message("b", &["2"])]), [both]);
    }

    #[test]
    fn what_cannot_be_joined_stays_apart() {
        let caller = json!({ "role": "assistant", "content": "a", "tool_calls": [{ "id": "c" }] });
        let answer = json!({ "role": "assistant", "content": "b" });
        let named = json!({ "role": "user", "name": "ann", "content": "c" });
        let audio = json!({ "role": "assistant", "content": null, "audio": { "id": "x" } });
        let result = json!({ "role": "tool", "tool_call_id": "c", "content": "d" });
        for pair in [
            [caller, answer.clone()],
            [user("e"), named],
            [audio, answer.clone()],
            [result.clone(), result],
            [user("e"), answer],
        ] {
            assert_eq!(joined(&pair), pair);
        }
    }
}
