//! Reading JSON that may lack anything.

use serde_json::Value;

/// The list under a key; empty where there is none.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text under a key; empty where there is none.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a key is there and not null.
pub(super) fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}

/// Whether a name has so many characters at most, all of `[a-zA-Z0-9_-]`.
pub(super) fn is_name(name: &str, max_chars: usize) -> bool {
    let fits = (1..=max_chars).contains(&name.len());
    fits && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Every object below a value, itself among them.
pub(super) fn objects<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.push(value);
            fields.values().for_each(|inner| objects(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| objects(inner, found)),
        _ => {}
    }
}

/// Whether every text is another one; returns those that are not.
pub(super) fn repeated<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::HashSet::new();
    texts.filter(|text| !seen.insert(*text)).collect()
}
