//! Puts a text of an engine before the system prompt of a client's request.

use serde_json::{Map, Value, json};

use super::item_json::parse_item;

/// Where the system prompt of a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemPlace {
    /// The first message of the list `messages`.
    FirstMessage,
    /// A text, or a list of blocks of text, in this field.
    Field(&'static str),
    /// The list `parts` of an object in the first of these fields that the body has.
    Parts([&'static str; 2]),
}

/// The body with `text` before its system prompt; the same body where it has no place for it.
#[must_use]
pub fn prepend_system(place: SystemPlace, body: Vec<u8>, text: &str) -> Vec<u8> {
    let json = std::str::from_utf8(&body).ok();
    let parsed = json.and_then(|json| parse_item(json).ok());
    let Some(Value::Object(mut fields)) = parsed else { return body };
    let written = match place {
        SystemPlace::FirstMessage => prepend_message(&mut fields, text),
        SystemPlace::Field(name) => prepend_text(fields.entry(name).or_insert(Value::Null), text),
        SystemPlace::Parts(names) => prepend_part(&mut fields, names, text),
    };
    written.map_or(body, |()| Value::Object(fields).to_string().into_bytes())
}

fn prepend_message(fields: &mut Map<String, Value>, text: &str) -> Option<()> {
    let messages = fields.get_mut("messages")?.as_array_mut()?;
    let first = messages.first_mut().filter(|first| {
        matches!(first.get("role").and_then(Value::as_str), Some("system" | "developer"))
    });
    match first {
        // Some models take one system message only.
        Some(first) => prepend_text(first.get_mut("content")?, text),
        None => {
            messages.insert(0, json!({ "role": "system", "content": text }));
            Some(())
        }
    }
}

fn prepend_text(content: &mut Value, text: &str) -> Option<()> {
    match content {
        Value::Null => *content = text.into(),
        Value::String(own) if own.is_empty() => *content = text.into(),
        Value::String(own) => *content = format!("{text}\n\n{own}").into(),
        Value::Array(blocks) => blocks.insert(0, json!({ "type": "text", "text": text })),
        _ => return None,
    }
    Some(())
}

fn prepend_part(
    fields: &mut Map<String, Value>,
    [first, second]: [&'static str; 2],
    text: &str,
) -> Option<()> {
    let name = if fields.contains_key(second) { second } else { first };
    let instruction = fields.entry(name).or_insert_with(|| json!({ "parts": [] }));
    // One part may stand without its list.
    let parts = instruction.as_object_mut()?.entry("parts").or_insert_with(|| json!([]));
    if parts.is_object() {
        *parts = json!([parts.take()]);
    }
    parts.as_array_mut()?.insert(0, json!({ "text": text }));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_stands_before_each_form_of_a_system_prompt() {
        let (message, field) = (SystemPlace::FirstMessage, SystemPlace::Field("system"));
        let parts = SystemPlace::Parts(["systemInstruction", "system_instruction"]);
        for (place, body, expected) in [
            (
                message,
                json!({ "messages": [{ "role": "system", "content": "Own." }, { "role": "user", "content": "Hi" }] }),
                json!({ "messages": [{ "role": "system", "content": "Text.\n\nOwn." }, { "role": "user", "content": "Hi" }] }),
            ),
            (
                message,
                json!({ "messages": [{ "role": "user", "content": "Hi" }] }),
                json!({ "messages": [{ "role": "system", "content": "Text." }, { "role": "user", "content": "Hi" }] }),
            ),
            (field, json!({ "system": "Own." }), json!({ "system": "Text.\n\nOwn." })),
            (field, json!({ "max_tokens": 1 }), json!({ "max_tokens": 1, "system": "Text." })),
            (
                field,
                json!({ "system": [{ "type": "text", "text": "Own." }] }),
                json!({ "system": [{ "type": "text", "text": "Text." }, { "type": "text", "text": "Own." }] }),
            ),
            (
                parts,
                json!({ "system_instruction": { "parts": [{ "text": "Own." }] } }),
                json!({ "system_instruction": { "parts": [{ "text": "Text." }, { "text": "Own." }] } }),
            ),
            (parts, json!({}), json!({ "systemInstruction": { "parts": [{ "text": "Text." }] } })),
        ] {
            let written = prepend_system(place, body.to_string().into_bytes(), "Text.");
            assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), expected);
        }
        for body in ["[]", "{\"messages\":7}", "no JSON"] {
            let same = prepend_system(message, body.as_bytes().to_vec(), "Text.");
            assert_eq!(same, body.as_bytes());
        }
    }
}
