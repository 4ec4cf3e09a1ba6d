//! Reads the objects of a JSON Lines file with their line numbers.

use serde_json::{Map, Value};

use super::transcript::ImportProblem;

/// A JSON object on a line of its own, or in a list.
#[derive(Clone, Debug)]
pub(super) struct JsonRecord {
    /// The line that it starts on, from 1.
    pub(super) line: u64,
    /// Its fields.
    pub(super) fields: Map<String, Value>,
}

impl JsonRecord {
    /// Parses one JSON object.
    pub(super) fn parse(line: u64, text: &[u8]) -> Result<JsonRecord, ImportProblem> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => Ok(JsonRecord { line, fields }),
            Ok(other) => {
                Err(problem(line, format!("{} where a record belongs", describe_kind(&other))))
            }
            Err(error) => Err(problem(line, format!("not JSON from column {}", error.column()))),
        }
    }

    /// A string field.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// Whether a field is `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.fields.get(name).and_then(Value::as_bool) == Some(true)
    }

    /// Removes a field; `null` if it is missing.
    pub(super) fn take(&mut self, name: &str) -> Value {
        self.fields.get_mut(name).map(Value::take).unwrap_or_default()
    }

    /// When it was written, in milliseconds since 1970.
    pub(super) fn timestamp_ms(&self) -> Option<i64> {
        self.text("timestamp").and_then(timestamp_ms)
    }
}

/// The records of a JSON Lines file, and a problem for each line that is none. Blank lines are skipped.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Result<JsonRecord, ImportProblem>> {
    let lines = strip_bom(bytes).split(|byte| *byte == b'\n');
    lines.zip(1..).filter_map(|(text, line)| {
        let text = text.trim_ascii();
        (!text.is_empty()).then(|| JsonRecord::parse(line, text))
    })
}

/// The bytes without the byte order mark that some editors write.
pub(super) fn strip_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

pub(super) fn problem(line: u64, message: impl Into<String>) -> ImportProblem {
    ImportProblem { line, message: message.into() }
}

/// The type of a JSON value for messages.
pub(super) fn describe_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Milliseconds since 1970 of an ISO 8601 time, in UTC if it has no offset.
fn timestamp_ms(text: &str) -> Option<i64> {
    let zoned = text.parse::<jiff::Timestamp>().ok();
    let plain = || {
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    zoned.or_else(plain).map(|time| time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_the_blank_ones() {
        let bytes = b"\xEF\xBB\xBF{\"a\":1}\r\n\n  \n[1]\n{\"b\"\n\xFF\n{}";
        let read: Vec<_> = records(bytes).map(|r| r.map(|r| r.line).map_err(|p| p.line)).collect();
        assert_eq!(read, [Ok(1), Err(4), Err(5), Err(6), Ok(7)]);
    }

    #[test]
    fn times_with_and_without_an_offset() {
        let cases = [
            ("1970-01-01T00:00:01Z", Some(1_000)),
            ("2026-11-21T01:41:21.054Z", Some(1_795_225_281_054)),
            ("2026-11-21T02:41:21.054+01:00", Some(1_795_225_281_054)),
            ("2026-11-21T01:41:21.054000", Some(1_795_225_281_054)),
            ("yesterday", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(timestamp_ms(text), expected, "{text}");
        }
    }
}
