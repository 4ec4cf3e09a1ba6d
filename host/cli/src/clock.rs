//! The current time, which `SOURCE_DATE_EPOCH` fixes for reproducible output.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, or `SOURCE_DATE_EPOCH`.
pub(super) fn now_ms() -> i64 {
    // The variable of reproducible builds, in seconds:
    // https://reproducible-builds.org/specs/source-date-epoch/
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse::<i64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = || i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    fixed.map_or_else(now, |seconds| seconds.saturating_mul(1000))
}
