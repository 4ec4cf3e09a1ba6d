//! Fields of JSON that hold text.

use serde_json::Value;

/// A field of an object; empty where it holds no text.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The same as a text of its own.
pub(crate) fn string(object: &Value, field: &str) -> String {
    text(object, field).to_owned()
}

/// The texts of a content, be it a string or parts, joined by line feeds.
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
