//! JSON objects as ordered fields whose values keep their bytes.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object: names and the JSON of the values.
///
/// Re-encoding a message would change numbers and escapes, which invalidates the signatures of thinking blocks.
/// So lines are edited field by field.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonFields(Vec<(Cow<'static, str>, String)>);

impl JsonFields {
    /// Parses a JSON object.
    pub(super) fn parse(json: &str) -> Option<JsonFields> {
        serde_json::from_str(json).ok()
    }

    /// The JSON of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        // Of duplicate fields the last counts, as with `JSON.parse` in Pi.
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, json)| json.as_str())
    }

    /// The last field and its JSON.
    pub(super) fn last(&self) -> Option<(&str, &str)> {
        self.0.last().map(|(name, json)| (name.as_ref(), json.as_str()))
    }

    /// Replaces a field, or adds it at the end.
    pub(super) fn set(&mut self, name: impl Into<Cow<'static, str>>, json: String) {
        let name = name.into();
        match self.0.iter_mut().rev().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = json,
            None => self.0.push((name, json)),
        }
    }

    /// Replaces a field, or adds it after another one.
    pub(super) fn set_after(&mut self, neighbour: &str, name: &'static str, json: String) {
        let at = self.0.iter().position(|(key, _)| key == neighbour).map_or(0, |at| at + 1);
        if self.get(name).is_some() {
            self.set(name, json);
        } else {
            self.0.insert(at, (name.into(), json));
        }
    }

    /// Removes a field and returns its JSON.
    pub(super) fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// The object on one line.
    pub(super) fn to_line(&self) -> String {
        self.to_line_after("")
    }

    /// The object on one line behind a prefix.
    pub(super) fn to_line_after(&self, prefix: &str) -> String {
        // Hot path of the gateway, which writes several lines per request: one allocation.
        let mut line = String::with_capacity(prefix.len() + self.max_bytes());
        line.push_str(prefix);
        line.push('{');
        self.push_to(&mut line, "");
        line.push('}');
        line
    }

    /// The room that the object takes, unless the names of its fields have escapes.
    pub(super) fn max_bytes(&self) -> usize {
        self.0.iter().map(|(name, json)| name.len() + json.len() + 4).sum::<usize>() + 2
    }

    /// Adds the fields to a line, with a separator before the first and commas between them.
    pub(super) fn push_to(&self, line: &mut String, mut separator: &str) {
        for (name, json) in &self.0 {
            line.push_str(separator);
            separator = ",";
            push_string(line, name);
            line.push(':');
            line.push_str(json);
        }
    }
}

/// Adds the JSON of a string.
pub(super) fn push_string(line: &mut String, text: &str) {
    // Names and ids of our own need no escapes, and a line has many.
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        line.push('"');
        line.push_str(text);
        line.push('"');
    } else {
        line.push_str(&json_string(text));
    }
}

/// The JSON of a string.
pub(super) fn json_string(text: &str) -> String {
    // Serializing a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

/// The JSON of a string, or `null`.
pub(super) fn json_string_or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), json_string)
}

/// JSON without line breaks. They can only be whitespace, because JSON strings escape them.
pub(super) fn to_single_line(json: impl Into<String>) -> String {
    let json = json.into();
    // Most JSON has none, and this is called for every message.
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        return json;
    }
    json.replace(['\n', '\r'], " ")
}

impl<'de> Deserialize<'de> for JsonFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonFieldsVisitor)
    }
}

struct JsonFieldsVisitor;

impl<'de> Visitor<'de> for JsonFieldsVisitor {
    type Value = JsonFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<JsonFields, M::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            fields.push((Cow::Owned(name), value.get().to_owned()));
        }
        Ok(JsonFields(fields))
    }
}
