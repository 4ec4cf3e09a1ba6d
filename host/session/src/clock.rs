//! Conversion of times between Pi's ISO 8601 form and milliseconds.

use jiff::Timestamp;
use serde_json::Value;

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats a time as `2026-11-21T01:41:21.054Z`.
pub(super) fn format_iso(timestamp_ms: i64) -> String {
    let time = Timestamp::from_millisecond(timestamp_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// Parses an ISO 8601 time, or a number of milliseconds since 1970.
pub(super) fn parse_ms(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => Some(text.parse::<Timestamp>().ok()?.as_millisecond()),
        Value::Number(number) => number.as_i64(),
        _ => None,
    }
}
