//! Times as Pi writes them, and as numbers.

use jiff::Timestamp;
use serde_json::Value;

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// `2026-11-21T01:41:21.054Z`.
pub(super) fn format_iso(timestamp_ms: i64) -> String {
    let time = Timestamp::from_millisecond(timestamp_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// Milliseconds since 1970 from an ISO time or from a number of milliseconds.
pub(super) fn parse_ms(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => Some(text.parse::<Timestamp>().ok()?.as_millisecond()),
        Value::Number(number) => number.as_i64(),
        _ => None,
    }
}
