//! Access to fields of JSON values that may be missing or of another type.

use serde::de::Error;
use serde_json::Value;

use crate::inbound::parse_item;

/// The text of a field; empty if the field holds none.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// [`text`] as an owned string.
pub(crate) fn string(object: &Value, field: &str) -> String {
    text(object, field).to_owned()
}

/// Takes a field out of an object; `null` without it.
pub(crate) fn take(object: &mut Value, field: &str) -> Value {
    object.get_mut(field).map(Value::take).unwrap_or_default()
}

/// Takes the text of a field, which may have the size of a whole body; `None` if the field holds none.
pub(crate) fn take_text(object: &mut Value, field: &str) -> Option<String> {
    match object.get_mut(field)? {
        Value::String(text) => Some(std::mem::take(text)),
        _ => None,
    }
}

/// The texts of a message's content, a string or a list of parts, joined by line feeds.
pub(crate) fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Parses an item that is an object; any other JSON is an error.
pub(crate) fn parse_object(json: &str) -> serde_json::Result<Value> {
    let item = parse_item(json)?;
    if item.is_object() { Ok(item) } else { Err(serde_json::Error::custom("not an object")) }
}

/// Parses JSON; text that is not JSON stays a string.
pub(crate) fn parse_or_string(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// A string as it is, anything else as JSON.
pub(crate) fn text_or_json(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Sets a field of an object.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
}

/// Removes a field of an object and keeps the order of the others.
pub(crate) fn remove(object: &mut Value, field: &str) {
    object.as_object_mut().and_then(|fields| fields.shift_remove(field));
}

/// Replaces `field` by a text that is not empty.
pub(crate) fn update_text(field: &mut String, text: &str) {
    if !text.is_empty() {
        text.clone_into(field);
    }
}

/// Replaces `count` by the number in a field, if there is one.
pub(crate) fn update_count(count: &mut u64, object: &Value, field: &str) {
    if let Some(number) = object.get(field).and_then(Value::as_u64) {
        *count = number;
    }
}
